#include "kernels/layer_norm/layer_norm.hpp"
#include "kernels/support/cuda/cuda_norm_backward.cuh"
#include "kernels/support/cuda/cuda_rows.cuh"

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
};

template <class T, class Weight, Access access>
__global__ void __launch_bounds__(kMostRowThreads, kRowBlocks<access>)
    forward_kernel(ForwardArgs<T, Weight> args) {
  constexpr int N = kPack<T>;
  __shared__ double shared[kMostWarps];
  RowThreads<T, access> threads{args.threads, args.columns};
  const std::int64_t columns = args.columns;

  for (std::int64_t r = threads.first_row(); r < args.rows; r += threads.row_stride()) {
    threads.load(args.x + r * columns);
    float sum = 0.0F;
    threads.for_packs([&](const float(&values)[N], std::int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) { sum += values[j]; }
    });
    const float mean = threads.mean(sum, args.inverse_columns, shared);
    // A second pass over the row: no cancellation, unlike E[x^2] - E[x]^2.
    float squares = 0.0F;
    threads.for_packs([&](const float(&values)[N], std::int64_t c) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float centred = threads.is_inside(c, j) ? values[j] - mean : 0.0F;
        squares = fmaf(centred, centred, squares);
      }
    });
    const float variance = threads.mean(squares, args.inverse_columns, shared);
    const float inverse_std = 1.0F / sqrtf(variance + kLayerNormEps);
    T* const to = args.y + r * columns;
    threads.for_packs([&](const float(&values)[N], std::int64_t c) {
      float weight[N];
      float bias[N];
      float y[N];
      load_floats(args.weight + c, access, columns - c, weight);
      load_floats(args.bias + c, access, columns - c, bias);
#pragma unroll
      for (int j = 0; j < N; ++j) { y[j] = (values[j] - mean) * inverse_std * weight[j] + bias[j]; }
      store_floats(to + c, access, columns - c, y);
    });
    if (threads.index == 0) {
      args.mean[r] = mean;
      args.inverse_std[r] = inverse_std;
    }
  }
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
        const int threads = row_threads(args.columns, kForwardElems<T>);
        const Access access = access_of(kPack<T>, args.columns, {args.x, weight, bias, args.y});
        const auto kernel = access == Access::packs ? forward_kernel<T, Weight, Access::packs>
                                                    : forward_kernel<T, Weight, Access::singles>;
        launch(
            kernel, row_grid(args.rows, threads), cuda_stream(stream).open(),
            ForwardArgs<T, Weight>{args.x.as<T>(), weight.as<Weight>(), bias.as<Weight>(),
                                   args.y.as<T>(), args.mean, args.inverse_std, args.rows,
                                   args.columns, 1.0 / static_cast<double>(args.columns), threads});
      });
}

void layer_norm_backward(const LayerNormBackward& args, Stream stream) {
  expects(args.x.dtype == args.dy.dtype && args.x.dtype == args.dx.dtype,
          "layer_norm_backward: x, dy and dx are of one dtype");
  expects(!args.dweight || !args.dbias || args.dweight.dtype == args.dbias.dtype,
          "layer_norm_backward: both gradients are of one dtype");
  with_device_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
    norm_backward<Centring::mean>(
        NormBackward<T>{.x = args.x.as<T>(),
                        .weight = args.weight,
                        .mean = args.mean,
                        .scale = args.inverse_std,
                        .dy = args.dy.as<T>(),
                        .dx = args.dx.as<T>(),
                        .rows = args.rows,
                        .columns = args.columns,
                        .access = access_of(kPack<T>, args.columns, {args.x, args.dy, args.dx})},
        {{args.dweight, args.dbias},
         {args.dweight_write == Write::overwrite, args.dbias_write == Write::overwrite}},
        stream);
  });
}

}  // namespace tessera::kernels::cuda
