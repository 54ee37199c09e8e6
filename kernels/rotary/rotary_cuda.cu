#include "kernels/rotary/rotary.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/position_of.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct RotaryArgs {
  T* x;
  const float* cosines;
  const float* sines;
  const std::int32_t* first_key;
  std::int64_t packs;       // of all heads
  std::int64_t head_packs;  // that the threads of one head rotate
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t head_size;
  std::int64_t pairs;
  std::int64_t row_elems;
  float direction;
  Access access;
};

/// A head, and the first of its pairs' angles.
template <class T>
struct RotaryHead {
  T* at;
  std::int64_t angles;

  __device__ RotaryHead(const RotaryArgs<T>& args, std::int64_t head) {
    const std::int64_t row = head / args.heads;
    at = args.x + row * args.row_elems + head % args.heads * args.head_size;
    angles = position_of(args.first_key, row, row % args.seq) * args.pairs;
  }
};

/// Rotates (a, b) by an angle.
__device__ inline void turn_pair(float& a, float& b, float cosine, float sine) {
  const float turned = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = turned;
}

// A thread rotates N neighbouring pairs: the same pairs, with the same bits, whichever way they are
// read.
template <class T>
__global__ void rotary_halves_kernel(RotaryArgs<T> args) {
  constexpr int N = kPack<T>;
  for (std::int64_t p = first_index(); p < args.packs; p += index_stride()) {
    const RotaryHead<T> head{args, p / args.head_packs};
    const std::int64_t i = p % args.head_packs * N;
    T* const first = head.at + i;
    T* const second = first + args.pairs;
    const std::int64_t count = args.pairs - i;
    float a[N];
    float b[N];
    float cosine[N];
    float sine[N];
    load_floats(first, args.access, count, a);
    load_floats(second, args.access, count, b);
    load_floats(args.cosines + head.angles + i, args.access, count, cosine);
    load_floats(args.sines + head.angles + i, args.access, count, sine);
#pragma unroll
    for (int j = 0; j < N; ++j) { turn_pair(a[j], b[j], cosine[j], args.direction * sine[j]); }
    store_floats(first, args.access, count, a);
    store_floats(second, args.access, count, b);
  }
}

// A thread rotates the N / 2 pairs of N neighbouring values.
template <class T>
__global__ void rotary_neighbours_kernel(RotaryArgs<T> args) {
  constexpr int N = kPack<T>;
  for (std::int64_t p = first_index(); p < args.packs; p += index_stride()) {
    const RotaryHead<T> head{args, p / args.head_packs};
    const std::int64_t i = p % args.head_packs * (N / 2);
    T* const values = head.at + 2 * i;
    const std::int64_t count = args.pairs - i;
    float x[N];
    float cosine[N / 2];
    float sine[N / 2];
    load_floats(values, args.access, 2 * count, x);
    load_floats(args.cosines + head.angles + i, args.access, count, cosine);
    load_floats(args.sines + head.angles + i, args.access, count, sine);
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      turn_pair(x[2 * j], x[2 * j + 1], cosine[j], args.direction * sine[j]);
    }
    store_floats(values, args.access, 2 * count, x);
  }
}

void turn_heads(const Rotary& args, float direction, Stream stream) {
  with_device_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int N = kPack<T>;
    const bool halves = args.pairs == RotaryPairs::halves;
    const std::int64_t rotated = rotated_of(args);
    const std::int64_t row = row_elems_of(args);
    // Runs of values that a thread reads packs of: each half of the rotated values, or all of them.
    const std::int64_t run = halves ? rotated / 2 : rotated;
    const std::int64_t head_packs = (run + N - 1) / N;
    const std::int64_t packs = args.batch * args.seq * args.heads * head_packs;
    // Each run starts at a multiple of a pack if runs, heads and rows consist of whole packs.
    const Access access = row % N == 0 && args.head_size % N == 0
                              ? access_of(N, run, {args.x, args.cosines, args.sines})
                              : Access::singles;
    launch(
        halves ? rotary_halves_kernel<T> : rotary_neighbours_kernel<T>, grid_for(packs),
        cuda_stream(stream).open(),
        RotaryArgs<T>{args.x.as<T>(), args.cosines, args.sines, args.first_key, packs, head_packs,
                      args.seq, args.heads, args.head_size, rotated / 2, row, direction, access});
  });
}

}  // namespace

void rotary_forward(const Rotary& args, Stream stream) {
  turn_heads(args, 1.0F, stream);
}

void rotary_backward(const Rotary& args, Stream stream) {
  turn_heads(args, -1.0F, stream);
}

}  // namespace tessera::kernels::cuda
