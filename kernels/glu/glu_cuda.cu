#include "kernels/gelu/gelu_cuda.cuh"
#include "kernels/glu/glu.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"

// The exponential and the division are CUDA's own.

namespace tessera::kernels::cuda {
namespace {

class Silu {
 public:
  __device__ static float value(float gate) { return gate / (1.0F + expf(-gate)); }
  __device__ static Activated value_and_slope(float gate) {
    const float e = expf(-gate);
    const float logistic = 1.0F / (1.0F + e);
    const float rest = fminf(e, kMost) * logistic;  // 1 - logistic without the cancellation
    return {gate * logistic, logistic * (1.0F + gate * rest)};
  }

 private:
  // If exp(-gate) is infinite the logistic function is 0, and its factor here stays finite.
  static constexpr float kMost = 3.402823466e38F;
};

template <class T>
struct GLUArgs {
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

template <class Function, class T>
__global__ void glu_forward_kernel(GLUArgs<T> args) {
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
    for (int j = 0; j < N; ++j) { up[j] *= Function::value(gate[j]); }
    store_floats(args.y + row * args.columns + c, args.access, count, up);
  }
}

template <class Function, class T>
__global__ void glu_backward_kernel(GLUArgs<T> args) {
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
      const Activated activated = Function::value_and_slope(gate[j]);
      gate[j] = dy[j] * up[j] * activated.slope;
      up[j] = dy[j] * activated.value;
    }
    store_floats(args.dgate + at, args.access, count, gate);
    store_floats(args.dup + at, args.access, count, up);
  }
}

/// The sizes that both directions take.
template <class T>
GLUArgs<T> sizes_of(std::int64_t rows, std::int64_t columns, std::int64_t row_elems) {
  constexpr int N = kPack<T>;
  const std::int64_t row_packs = (columns + N - 1) / N;
  GLUArgs<T> args{};
  args.packs = rows * row_packs;
  args.row_packs = row_packs;
  args.columns = columns;
  args.row_elems = row_elems == 0 ? columns : row_elems;
  return args;
}

}  // namespace

void glu_forward(const GLUForward& args, Stream stream) {
  with_device_type(args.y.dtype, [&]<class T>(std::type_identity<T>) {
    GLUArgs<T> all = sizes_of<T>(args.rows, args.columns, args.row_elems);
    all.gate = args.gate.as<T>();
    all.up = args.up.as<T>();
    all.y = args.y.as<T>();
    all.access = all.row_elems % kPack<T> == 0
                     ? access_of(kPack<T>, args.columns, {args.gate, args.up, args.y})
                     : Access::singles;
    const auto kernel = args.function == Gate::gelu_tanh ? glu_forward_kernel<GeluTanh, T>
                                                         : glu_forward_kernel<Silu, T>;
    launch(kernel, grid_for(all.packs), cuda_stream(stream).open(), all);
  });
}

void glu_backward(const GLUBackward& args, Stream stream) {
  with_device_type(args.dy.dtype, [&]<class T>(std::type_identity<T>) {
    GLUArgs<T> all = sizes_of<T>(args.rows, args.columns, args.row_elems);
    all.gate = args.gate.as<T>();
    all.up = args.up.as<T>();
    all.dy = args.dy.as<T>();
    all.dgate = args.dgate.as<T>();
    all.dup = args.dup.as<T>();
    all.access =
        all.row_elems % kPack<T> == 0
            ? access_of(kPack<T>, args.columns, {args.gate, args.up, args.dy, args.dgate, args.dup})
            : Access::singles;
    const auto kernel = args.function == Gate::gelu_tanh ? glu_backward_kernel<GeluTanh, T>
                                                         : glu_backward_kernel<Silu, T>;
    launch(kernel, grid_for(all.packs), cuda_stream(stream).open(), all);
  });
}

}  // namespace tessera::kernels::cuda
