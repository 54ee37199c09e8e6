#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/swiglu/swiglu.hpp"

// The exponential and the division are CUDA's own.

namespace tessera::kernels::cuda {
namespace {

// If exp(-gate) is infinite the logistic function is 0, and its factor here stays finite.
constexpr float kMost = 3.402823466e38F;

template <class T>
struct SwiGLUArgs {
  const T* gate;
  const T* up;
  const T* dy;  // null in forward
  T* y;         // null in backward
  T* dgate;
  T* dup;
  std::int64_t packs;
  std::int64_t row_packs;
  std::int64_t columns;
  std::int64_t row_elems;
  Access access;
};

template <class T>
__global__ void swiglu_forward_kernel(SwiGLUArgs<T> args) {
  constexpr int N = kPack<T>;
  for (std::int64_t p = first_index(); p < args.packs; p += index_stride()) {
    const std::int64_t row = p / args.row_packs;
    const std::int64_t c = p % args.row_packs * N;
    const std::int64_t count = args.columns - c;
    const std::int64_t at = row * args.row_elems + c;
    float gate[N];
    float up[N];
    load_floats(args.gate + at, args.access, count, gate);
    load_floats(args.up + at, args.access, count, up);
#pragma unroll
    for (int j = 0; j < N; ++j) { up[j] *= gate[j] / (1.0F + expf(-gate[j])); }
    store_floats(args.y + row * args.columns + c, args.access, count, up);
  }
}

template <class T>
__global__ void swiglu_backward_kernel(SwiGLUArgs<T> args) {
  constexpr int N = kPack<T>;
  for (std::int64_t p = first_index(); p < args.packs; p += index_stride()) {
    const std::int64_t row = p / args.row_packs;
    const std::int64_t c = p % args.row_packs * N;
    const std::int64_t count = args.columns - c;
    const std::int64_t at = row * args.row_elems + c;
    float gate[N];
    float up[N];
    float dy[N];
    load_floats(args.gate + at, args.access, count, gate);
    load_floats(args.up + at, args.access, count, up);
    load_floats(args.dy + row * args.columns + c, args.access, count, dy);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float e = expf(-gate[j]);
      const float logistic = 1.0F / (1.0F + e);
      const float rest = fminf(e, kMost) * logistic;  // 1 - logistic without the cancellation
      const float activated = gate[j] * logistic;
      gate[j] = dy[j] * up[j] * (logistic * (1.0F + gate[j] * rest));
      up[j] = dy[j] * activated;
    }
    store_floats(args.dgate + at, args.access, count, gate);
    store_floats(args.dup + at, args.access, count, up);
  }
}

/// The sizes that both directions take.
template <class T>
SwiGLUArgs<T> sizes_of(std::int64_t rows, std::int64_t columns, std::int64_t row_elems) {
  constexpr int N = kPack<T>;
  const std::int64_t row_packs = (columns + N - 1) / N;
  SwiGLUArgs<T> args{};
  args.packs = rows * row_packs;
  args.row_packs = row_packs;
  args.columns = columns;
  args.row_elems = row_elems == 0 ? columns : row_elems;
  return args;
}

}  // namespace

void swiglu_forward(const SwiGLUForward& args, Stream stream) {
  with_device_type(args.y.dtype, [&]<class T>(std::type_identity<T>) {
    SwiGLUArgs<T> all = sizes_of<T>(args.rows, args.columns, args.row_elems);
    all.gate = args.gate.as<T>();
    all.up = args.up.as<T>();
    all.y = args.y.as<T>();
    all.access = all.row_elems % kPack<T> == 0
                     ? access_of(kPack<T>, args.columns, {args.gate, args.up, args.y})
                     : Access::singles;
    launch(swiglu_forward_kernel<T>, grid_for(all.packs), cuda_stream(stream).open(), all);
  });
}

void swiglu_backward(const SwiGLUBackward& args, Stream stream) {
  with_device_type(args.dy.dtype, [&]<class T>(std::type_identity<T>) {
    SwiGLUArgs<T> all = sizes_of<T>(args.rows, args.columns, args.row_elems);
    all.gate = args.gate.as<T>();
    all.up = args.up.as<T>();
    all.dy = args.dy.as<T>();
    all.dgate = args.dgate.as<T>();
    all.dup = args.dup.as<T>();
    all.access =
        all.row_elems % kPack<T> == 0
            ? access_of(kPack<T>, args.columns, {args.gate, args.up, args.dy, args.dgate, args.dup})
            : Access::singles;
    launch(swiglu_backward_kernel<T>, grid_for(all.packs), cuda_stream(stream).open(), all);
  });
}

}  // namespace tessera::kernels::cuda
