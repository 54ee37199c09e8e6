#include <algorithm>

#include "kernels/cross_entropy/rows_cuda.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"
#include "kernels/vocab_cross_entropy/row_parts.hpp"
#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"

// One block per row.

namespace tessera::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    statistics_kernel(const T* all, const std::int32_t* targets, float* statistics,
                      std::int64_t classes, std::int64_t first_class, std::int64_t stride) {
  const T* const logits = all + blockIdx.x * stride;
  const BlockSum row = block_exp_sum(exp_sum<Row::read_again, T>(logits, classes, nullptr));
  if (threadIdx.x != 0) { return; }
  const std::int64_t target = targets[blockIdx.x] - first_class;
  float* const out = statistics + std::int64_t{blockIdx.x} * kRowStatistics;
  out[0] = row.max;
  out[1] = static_cast<float>(row.sum);
  out[2] = target >= 0 && target < classes ? to_float(logits[target]) : 0.0F;
}

template <class T>
struct Rows {
  T* logits;
  const std::int32_t* targets;
  const float* statistics;
  std::int64_t parts;
  std::int64_t rows;
  std::int64_t first;  ///< first of the rows that have statistics
  double* losses;
  std::int64_t classes;
  std::int64_t first_class;
  std::int64_t stride;
  float gradient_scale;
  const float* dynamic_scale;
};

template <class T>
__global__ void __launch_bounds__(kMostThreads) gradient_kernel(Rows<T> rows) {
  __shared__ RowParts all;
  const std::int64_t r = rows.first + blockIdx.x;
  if (rows.targets[r] < 0) {
    if (rows.gradient_scale != 0.0F) { clear_row(rows.logits + r * rows.stride, rows.classes); }
    return;
  }
  if (threadIdx.x == 0) {
    all = row_parts(rows.statistics, rows.parts, rows.rows, r);
    rows.losses[blockIdx.x] = all.loss();
  }
  __syncthreads();
  const float scale = rows.dynamic_scale == nullptr ? rows.gradient_scale
                                                    : rows.gradient_scale * *rows.dynamic_scale;
  if (scale == 0.0F) { return; }
  T* const logits = rows.logits + r * rows.stride;
  const auto factor = static_cast<float>(static_cast<double>(scale) / all.sum);
  write_gradient(logits, logits, rows.classes,
                 RowGradient{all.max, factor, scale, rows.targets[r] - rows.first_class});
}

template <class T>
void add_rows(const VocabCrossEntropy& args, Stream stream) {
  WorkspaceCut workspace{stream};
  const auto room = static_cast<std::int64_t>(workspace.left_bytes() / sizeof(double));
  const std::int64_t most = std::min(room, args.rows);
  double* const losses = workspace.take<double>(most);
  Grid grid{.threads = static_cast<unsigned>(row_threads(args.classes))};
  for (std::int64_t first = 0; first < args.rows; first += most) {
    const std::int64_t rows = std::min(most, args.rows - first);
    grid.blocks = static_cast<unsigned>(rows);
    launch(gradient_kernel<T>, grid, cuda_stream(stream).open(),
           Rows<T>{args.logits.as<T>(), args.targets, args.statistics, args.parts, args.rows, first,
                   losses, args.classes, args.first_class, args.row_elems(), args.gradient_scale,
                   args.dynamic_scale});
    launch(add_losses_kernel, {1, kMostThreads}, cuda_stream(stream).open(), losses,
           args.targets + first, rows, args.loss_scale, args.loss, args.counted);
  }
}

}  // namespace

void vocab_statistics(const VocabStatistics& args, Stream stream) {
  if (args.rows == 0) { return; }
  with_device_type(args.logits.dtype, [&]<class T>(std::type_identity<T>) {
    const Grid grid{.blocks = static_cast<unsigned>(args.rows),
                    .threads = static_cast<unsigned>(row_threads(args.classes))};
    launch(statistics_kernel<T>, grid, cuda_stream(stream).open(), args.logits.as<T>(),
           args.targets, args.statistics, args.classes, args.first_class, args.row_elems());
  });
}

void vocab_cross_entropy(const VocabCrossEntropy& args, Stream stream) {
  if (args.rows == 0) { return; }
  with_device_type(args.logits.dtype,
                   [&]<class T>(std::type_identity<T>) { add_rows<T>(args, stream); });
}

}  // namespace tessera::kernels::cuda
