#include "kernels/rotary/rotary.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"

namespace tessera::kernels::cuda {
namespace {

template <class T>
struct RotaryArgs {
  T* x;
  const float* cosines;
  const float* sines;
  std::int64_t packs;       // of all pairs
  std::int64_t head_packs;  // of the pairs of one head
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t pairs;
  std::int64_t row_elems;
  float direction;
  Access access;
};

// A thread rotates N neighbouring pairs: the same pairs, with the same bits, whichever way they are
// read.
template <class T>
__global__ void rotary_kernel(RotaryArgs<T> args) {
  constexpr int N = kPack<T>;
  for (std::int64_t p = first_index(); p < args.packs; p += index_stride()) {
    const std::int64_t i = p % args.head_packs * N;
    const std::int64_t head = p / args.head_packs;
    const std::int64_t token = head / args.heads;
    T* const first = args.x + token * args.row_elems + head % args.heads * 2 * args.pairs + i;
    T* const second = first + args.pairs;
    const std::int64_t angle = token % args.seq * args.pairs + i;
    const std::int64_t count = args.pairs - i;
    float a[N];
    float b[N];
    float cosine[N];
    float sine[N];
    load_floats(first, args.access, count, a);
    load_floats(second, args.access, count, b);
    load_floats(args.cosines + angle, args.access, count, cosine);
    load_floats(args.sines + angle, args.access, count, sine);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float turned = args.direction * sine[j];
      const float left = a[j] * cosine[j] - b[j] * turned;
      b[j] = b[j] * cosine[j] + a[j] * turned;
      a[j] = left;
    }
    store_floats(first, args.access, count, a);
    store_floats(second, args.access, count, b);
  }
}

void turn_heads(const Rotary& args, float direction, Stream stream) {
  with_device_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int N = kPack<T>;
    const std::int64_t pairs = args.head_size / 2;
    const std::int64_t row = args.row_elems == 0 ? args.heads * args.head_size : args.row_elems;
    const std::int64_t head_packs = (pairs + N - 1) / N;
    const std::int64_t packs = args.batch * args.seq * args.heads * head_packs;
    // Each half of a head starts at a multiple of a pack if halves and rows consist of whole packs.
    const Access access =
        row % N == 0 ? access_of(N, pairs, {args.x, args.cosines, args.sines}) : Access::singles;
    launch(rotary_kernel<T>, grid_for(packs), cuda_stream(stream).open(),
           RotaryArgs<T>{args.x.as<T>(), args.cosines, args.sines, packs, head_packs, args.seq,
                         args.heads, pairs, row, direction, access});
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
