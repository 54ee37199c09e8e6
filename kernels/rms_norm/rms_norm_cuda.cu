#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/support/cuda/cuda_column_sum.cuh"
#include "kernels/support/cuda/cuda_rows.cuh"

// Backward goes over x and dy twice, for the rows' sums and for the columns', as that of a layer
// norm.

namespace tessera::kernels::cuda {
namespace {

template <class T, class Weight>
struct RMSForwardArgs {
  const T* x;
  const Weight* weight;
  T* y;
  float* inverse_rms;
  std::int64_t rows;
  std::int64_t columns;
  double inverse_columns;
  float eps;
  int threads;
  Access access;
};

template <class T, class Weight>
__global__ void __launch_bounds__(kMostRowThreads)
    rms_forward_kernel(RMSForwardArgs<T, Weight> args) {
  constexpr int N = kPackOf<T, Weight>;
  using Threads = RowThreads<N, kForwardElems>;
  __shared__ double shared[kMostWarps];
  const Threads threads{args.threads};
  const std::int64_t columns = args.columns;

  for (std::int64_t r = threads.first_row(); r < args.rows; r += threads.row_stride()) {
    const T* const x = args.x + r * columns;
    float held[Threads::kHeld][N];
#pragma unroll
    for (int k = 0; k < Threads::kHeld; ++k) {
      const std::int64_t c = threads.column(k);
      if (c < columns) { load_floats(x + c, args.access, columns - c, held[k]); }
    }
    // body(values, column) for all packs of this thread; values are 0 beyond the row's end.
    const auto for_packs = [&](auto body) {
#pragma unroll
      for (int k = 0; k < Threads::kHeld; ++k) {
        if (threads.column(k) < columns) { body(held[k], threads.column(k)); }
      }
      threads.for_rest(columns, [&](std::int64_t c) {
        float values[N];
        load_floats(x + c, args.access, columns - c, values);
        body(values, c);
      });
    };

    float squares = 0.0F;
    for_packs([&](const float(&values)[N], std::int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) { squares = fmaf(values[j], values[j], squares); }
    });
    const float square = threads.mean(squares, args.inverse_columns, shared);
    const float inverse_rms = 1.0F / sqrtf(square + args.eps);
    for_packs([&](const float(&values)[N], std::int64_t c) {
      float weight[N];
      float y[N];
      load_floats(args.weight + c, args.access, columns - c, weight);
#pragma unroll
      for (int j = 0; j < N; ++j) { y[j] = values[j] * inverse_rms * weight[j]; }
      store_floats(args.y + r * columns + c, args.access, columns - c, y);
    });
    if (threads.index == 0) { args.inverse_rms[r] = inverse_rms; }
  }
}

template <class T, class Weight>
struct RMSBackwardArgs {
  const T* x;
  const Weight* weight;
  const float* inverse_rms;
  const T* dy;
  T* dx;
  std::int64_t rows;
  std::int64_t columns;
  double inverse_columns;
  int threads;
};

/// Some elements of a row: x as it was normalised, and the gradient of that.
template <int N>
struct RMSNormals {
  float normal[N];
  float dnormal[N];  ///< 0 beyond the row's end
};

template <Access access, int N, class T, class Weight>
__device__ RMSNormals<N> load_rms_normals(const RMSBackwardArgs<T, Weight>& args, std::int64_t row,
                                          std::int64_t column, float inverse_rms) {
  const std::int64_t at = row * args.columns + column;
  const std::int64_t count = args.columns - column;
  RMSNormals<N> values;
  float weight[N];
  load_floats(args.x + at, access, count, values.normal);
  load_floats(args.dy + at, access, count, values.dnormal);
  load_floats(args.weight + column, access, count, weight);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    values.normal[j] *= inverse_rms;
    values.dnormal[j] *= weight[j];
  }
  return values;
}

// The access is known when it is compiled: a branch at each of a row's loads would have them wait
// for each other.
template <class T, class Weight, Access access>
__global__ void __launch_bounds__(kMostRowThreads)
    rms_backward_kernel(RMSBackwardArgs<T, Weight> args) {
  constexpr int N = kPackOf<T, Weight>;
  using Threads = RowThreads<N, kBackwardElems>;
  __shared__ double shared[kMostWarps];
  const Threads threads{args.threads};
  const std::int64_t columns = args.columns;

  for (std::int64_t r = threads.first_row(); r < args.rows; r += threads.row_stride()) {
    const float inverse_rms = args.inverse_rms[r];
    RMSNormals<N> held[Threads::kHeld];
#pragma unroll
    for (int k = 0; k < Threads::kHeld; ++k) {
      const std::int64_t c = threads.column(k);
      if (c < columns) { held[k] = load_rms_normals<access, N>(args, r, c, inverse_rms); }
    }
    const auto for_packs = [&](auto body) {
#pragma unroll
      for (int k = 0; k < Threads::kHeld; ++k) {
        if (threads.column(k) < columns) { body(held[k], threads.column(k)); }
      }
      threads.for_rest(columns, [&](std::int64_t c) {
        body(load_rms_normals<access, N>(args, r, c, inverse_rms), c);
      });
    };

    float scaled = 0.0F;  // of dnormal * normal: what the scale's gradient takes away
    for_packs([&](const RMSNormals<N>& values, std::int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) { scaled = fmaf(values.dnormal[j], values.normal[j], scaled); }
    });
    const float mean = threads.mean(scaled, args.inverse_columns, shared);
    for_packs([&](const RMSNormals<N>& values, std::int64_t c) {
      float dx[N];
      T* const to = args.dx + r * columns + c;
      load_floats(to, access, columns - c, dx);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        dx[j] += inverse_rms * (values.dnormal[j] - values.normal[j] * mean);
      }
      store_floats(to, access, columns - c, dx);
    });
  }
}

/// The sums that are the gradient of the weight.
template <class T>
struct WeightGradient {
  static constexpr int kSums = 1;
  static constexpr int kColumns = kPack<T>;

  const T* x;
  const T* dy;
  const float* inverse_rms;
  std::int64_t columns;
  Access access;

  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[kColumns]) const {
    float values[kColumns];
    float gradients[kColumns];
    load_floats(x + row * columns + column, access, columns - column, values);
    load_floats(dy + row * columns + column, access, columns - column, gradients);
    const float row_inverse_rms = inverse_rms[row];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) { sums[j] += gradients[j] * (values[j] * row_inverse_rms); }
  }
};

void add_weight_gradient(const RMSNormBackward& args, Stream stream) {
  with_device_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
    const WeightGradient<T> terms{args.x.as<T>(), args.dy.as<T>(), args.inverse_rms, args.columns,
                                  access_of(kPack<T>, args.columns, {args.x, args.dy})};
    add_column_sums(terms, {{args.dweight}}, args.rows, args.columns, stream);
  });
}

}  // namespace

void rms_norm_forward(const RMSNormForward& args, Stream stream) {
  WorkspaceCut workspace{stream};
  const ConstValues weight = widened(args.weight, args.x.dtype, args.columns, workspace, stream);
  with_types_of_rows(
      args.x.dtype, weight.dtype,
      [&]<class T, class Weight>(std::type_identity<T>, std::type_identity<Weight>) {
        const int threads = row_threads(args.columns, kForwardElems);
        const Access access = access_of(kPackOf<T, Weight>, args.columns, {args.x, weight, args.y});
        launch(
            rms_forward_kernel<T, Weight>, row_grid(args.rows, threads), cuda_stream(stream).open(),
            RMSForwardArgs<T, Weight>{
                args.x.as<T>(), weight.as<Weight>(), args.y.as<T>(), args.inverse_rms, args.rows,
                args.columns, 1.0 / static_cast<double>(args.columns), args.eps, threads, access});
      });
}

void rms_norm_backward(const RMSNormBackward& args, Stream stream) {
  WorkspaceCut workspace{stream};
  const ConstValues weight = widened(args.weight, args.x.dtype, args.columns, workspace, stream);
  with_types_of_rows(
      args.x.dtype, weight.dtype,
      [&]<class T, class Weight>(std::type_identity<T>, std::type_identity<Weight>) {
        const int threads = row_threads(args.columns, kBackwardElems);
        const Access access =
            access_of(kPackOf<T, Weight>, args.columns, {args.x, weight, args.dy, args.dx});
        const auto kernel = access == Access::packs
                                ? rms_backward_kernel<T, Weight, Access::packs>
                                : rms_backward_kernel<T, Weight, Access::singles>;
        launch(kernel, row_grid(args.rows, threads), cuda_stream(stream).open(),
               RMSBackwardArgs<T, Weight>{args.x.as<T>(), weight.as<Weight>(), args.inverse_rms,
                                          args.dy.as<T>(), args.dx.as<T>(), args.rows, args.columns,
                                          1.0 / static_cast<double>(args.columns), threads});
      });
  if (args.dweight) { add_weight_gradient(args, stream); }
}

}  // namespace tessera::kernels::cuda
