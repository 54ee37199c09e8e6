#include "kernels/layer_norm/layer_norm.hpp"
#include "kernels/support/cuda/cuda_column_sum.cuh"
#include "kernels/support/cuda/cuda_rows.cuh"

// Backward goes over x and dy twice, for the rows' sums and for the columns': 2 + 2 reads, and one
// of dx and one write of it.

namespace tessera::kernels::cuda {
namespace {

template <class T, class Weight>
struct ForwardArgs {
  const T* x;
  const Weight* weight;
  const Weight* bias;
  T* y;
  float* mean;
  float* inverse_std;
  std::int64_t rows;
  std::int64_t columns;
  double inverse_columns;
  int threads;
  Access access;
};

template <class T, class Weight>
__global__ void __launch_bounds__(kMostRowThreads) forward_kernel(ForwardArgs<T, Weight> args) {
  constexpr int N = kPackOf<T, Weight>;
  using Threads = RowThreads<N, kForwardElems>;
  __shared__ double shared[kMostWarps];
  const Threads threads{args.threads};
  const std::int64_t columns = args.columns;

  for (std::int64_t r = threads.first_row(); r < args.rows; r += threads.row_stride()) {
    const T* const x = args.x + r * columns;
    float held[Threads::kHeld][N];
    // body(values, column) for all packs of this thread.
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
#pragma unroll
    for (int k = 0; k < Threads::kHeld; ++k) {
      const std::int64_t c = threads.column(k);
      if (c < columns) { load_floats(x + c, args.access, columns - c, held[k]); }
    }

    float sum = 0.0F;
    for_packs([&](const float(&values)[N], std::int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) { sum += values[j]; }
    });
    const float mean = threads.mean(sum, args.inverse_columns, shared);
    // The second pass over the row: no cancellation, unlike E[x^2] - E[x]^2.
    float squares = 0.0F;
    for_packs([&](const float(&values)[N], std::int64_t c) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float centred = c + j < columns ? values[j] - mean : 0.0F;
        squares = fmaf(centred, centred, squares);
      }
    });
    const float variance = threads.mean(squares, args.inverse_columns, shared);
    const float inverse_std = 1.0F / sqrtf(variance + kLayerNormEps);
    for_packs([&](const float(&values)[N], std::int64_t c) {
      float weight[N];
      float bias[N];
      float y[N];
      load_floats(args.weight + c, args.access, columns - c, weight);
      load_floats(args.bias + c, args.access, columns - c, bias);
#pragma unroll
      for (int j = 0; j < N; ++j) { y[j] = (values[j] - mean) * inverse_std * weight[j] + bias[j]; }
      store_floats(args.y + r * columns + c, args.access, columns - c, y);
    });
    if (threads.index == 0) {
      args.mean[r] = mean;
      args.inverse_std[r] = inverse_std;
    }
  }
}

template <class T, class Weight>
struct BackwardArgs {
  const T* x;
  const Weight* weight;
  const float* mean;
  const float* inverse_std;
  const T* dy;
  T* dx;
  std::int64_t rows;
  std::int64_t columns;
  double inverse_columns;
  int threads;
};

/// Some elements of a row: x as it was normalised, and the gradient of that.
template <int N>
struct Normals {
  float normal[N];
  float dnormal[N];  ///< 0 beyond the row's end
};

template <Access access, int N, class T, class Weight>
__device__ Normals<N> load_normals(const BackwardArgs<T, Weight>& args, std::int64_t row,
                                   std::int64_t column, float mean, float inverse_std) {
  const std::int64_t at = row * args.columns + column;
  const std::int64_t count = args.columns - column;
  Normals<N> values;
  float weight[N];
  load_floats(args.x + at, access, count, values.normal);
  load_floats(args.dy + at, access, count, values.dnormal);
  load_floats(args.weight + column, access, count, weight);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    values.normal[j] = (values.normal[j] - mean) * inverse_std;
    values.dnormal[j] *= weight[j];
  }
  return values;
}

// The access is known when it is compiled: a branch at each of a row's loads would have them wait
// for each other.
template <class T, class Weight, Access access>
__global__ void __launch_bounds__(kMostRowThreads) backward_kernel(BackwardArgs<T, Weight> args) {
  constexpr int N = kPackOf<T, Weight>;
  using Threads = RowThreads<N, kBackwardElems>;
  __shared__ double shared[kMostWarps];
  const Threads threads{args.threads};
  const std::int64_t columns = args.columns;

  for (std::int64_t r = threads.first_row(); r < args.rows; r += threads.row_stride()) {
    const float mean = args.mean[r];
    const float inverse_std = args.inverse_std[r];
    Normals<N> held[Threads::kHeld];
#pragma unroll
    for (int k = 0; k < Threads::kHeld; ++k) {
      const std::int64_t c = threads.column(k);
      if (c < columns) { held[k] = load_normals<access, N>(args, r, c, mean, inverse_std); }
    }
    const auto for_packs = [&](auto body) {
#pragma unroll
      for (int k = 0; k < Threads::kHeld; ++k) {
        if (threads.column(k) < columns) { body(held[k], threads.column(k)); }
      }
      threads.for_rest(columns, [&](std::int64_t c) {
        body(load_normals<access, N>(args, r, c, mean, inverse_std), c);
      });
    };

    float sum = 0.0F;     // of dnormal: what the mean's gradient takes away
    float scaled = 0.0F;  // of dnormal * normal: what the variance's takes away
    for_packs([&](const Normals<N>& values, std::int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        sum += values.dnormal[j];
        scaled = fmaf(values.dnormal[j], values.normal[j], scaled);
      }
    });
    const float sum_mean = threads.mean(sum, args.inverse_columns, shared);
    const float scaled_mean = threads.mean(scaled, args.inverse_columns, shared);
    for_packs([&](const Normals<N>& values, std::int64_t c) {
      float dx[N];
      T* const to = args.dx + r * columns + c;
      load_floats(to, access, columns - c, dx);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        dx[j] += inverse_std * ((values.dnormal[j] - sum_mean) - values.normal[j] * scaled_mean);
      }
      store_floats(to, access, columns - c, dx);
    });
  }
}

/// The sums that are the gradients of weight and bias.
template <class T>
struct ParameterGradients {
  static constexpr int kSums = 2;
  static constexpr int kColumns = kPack<T>;

  const T* x;
  const T* dy;
  const float* mean;
  const float* inverse_std;
  std::int64_t columns;
  Access access;

  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[2 * kColumns]) const {
    float values[kColumns];
    float gradients[kColumns];
    load_floats(x + row * columns + column, access, columns - column, values);
    load_floats(dy + row * columns + column, access, columns - column, gradients);
    const float row_mean = mean[row];
    const float row_inverse_std = inverse_std[row];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      sums[j] += gradients[j] * ((values[j] - row_mean) * row_inverse_std);
      sums[kColumns + j] += gradients[j];
    }
  }
};

void add_parameter_gradients(const LayerNormBackward& args, Stream stream) {
  with_device_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
    const ParameterGradients<T> terms{
        args.x.as<T>(),   args.dy.as<T>(), args.mean,
        args.inverse_std, args.columns,    access_of(kPack<T>, args.columns, {args.x, args.dy})};
    const ColumnSums<2> to{
        {args.dweight, args.dbias},
        {args.dweight_write == Write::overwrite, args.dbias_write == Write::overwrite}};
    add_column_sums(terms, to, args.rows, args.columns, stream);
  });
}

}  // namespace

void layer_norm_forward(const LayerNormForward& args, Stream stream) {
  expects(args.x.dtype == args.y.dtype && args.weight.dtype == args.bias.dtype,
          "layer_norm_forward: x and y are of one dtype, weight and bias of one");
  WorkspaceCut workspace{stream};
  const ConstValues weight = widened(args.weight, args.x.dtype, args.columns, workspace, stream);
  const ConstValues bias = widened(args.bias, args.x.dtype, args.columns, workspace, stream);
  with_types_of_rows(
      args.x.dtype, weight.dtype,
      [&]<class T, class Weight>(std::type_identity<T>, std::type_identity<Weight>) {
        const int threads = row_threads(args.columns, kForwardElems);
        const Access access =
            access_of(kPackOf<T, Weight>, args.columns, {args.x, weight, bias, args.y});
        launch(forward_kernel<T, Weight>, row_grid(args.rows, threads), cuda_stream(stream).open(),
               ForwardArgs<T, Weight>{args.x.as<T>(), weight.as<Weight>(), bias.as<Weight>(),
                                      args.y.as<T>(), args.mean, args.inverse_std, args.rows,
                                      args.columns, 1.0 / static_cast<double>(args.columns),
                                      threads, access});
      });
}

void layer_norm_backward(const LayerNormBackward& args, Stream stream) {
  expects(args.x.dtype == args.dy.dtype && args.x.dtype == args.dx.dtype,
          "layer_norm_backward: x, dy and dx are of one dtype");
  expects(!args.dweight || !args.dbias || args.dweight.dtype == args.dbias.dtype,
          "layer_norm_backward: both gradients are of one dtype");
  WorkspaceCut workspace{stream};
  const ConstValues weight = widened(args.weight, args.x.dtype, args.columns, workspace, stream);
  with_types_of_rows(
      args.x.dtype, weight.dtype,
      [&]<class T, class Weight>(std::type_identity<T>, std::type_identity<Weight>) {
        const int threads = row_threads(args.columns, kBackwardElems);
        const Access access =
            access_of(kPackOf<T, Weight>, args.columns, {args.x, weight, args.dy, args.dx});
        const auto kernel = access == Access::packs ? backward_kernel<T, Weight, Access::packs>
                                                    : backward_kernel<T, Weight, Access::singles>;
        launch(kernel, row_grid(args.rows, threads), cuda_stream(stream).open(),
               BackwardArgs<T, Weight>{args.x.as<T>(), weight.as<Weight>(), args.mean,
                                       args.inverse_std, args.dy.as<T>(), args.dx.as<T>(),
                                       args.rows, args.columns,
                                       1.0 / static_cast<double>(args.columns), threads});
      });
  if (args.dweight || args.dbias) { add_parameter_gradients(args, stream); }
}

}  // namespace tessera::kernels::cuda
