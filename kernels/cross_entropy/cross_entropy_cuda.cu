#include <algorithm>

#include "device/cuda/cuda_dynamic_shared.cuh"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/cross_entropy/rows_cuda.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"

// One block per row. It computes the largest logit and the sum of exponentials in one read of the
// row, keeps the row in shared memory, and writes the gradient from there: in 16 bits, 2 bytes read
// and 2 written per logit. A multiprocessor of an H100 holds two rows of 50,304 logits: one is read
// while the other is written. A row that exceeds the device's shared memory is read again instead,
// with the same order of sums and so the same bits.
//
// Registers would hold only one row per multiprocessor (1,024 threads of 25 words), whose read and
// write could not overlap.

namespace tessera::kernels::cuda {
namespace {

constexpr int kResident = 2;  // rows in flight per multiprocessor: one is read, one written

template <class T>
struct Rows {
  T* logits;
  const std::int32_t* targets;
  double* losses;
  std::int64_t classes;
  std::int64_t stride;
  float gradient_scale;
  const float* dynamic_scale;
};

/// Shared memory of a row, at any alignment within 16 bytes.
template <class T>
std::int64_t kept_bytes(std::int64_t classes) {
  return (classes + kPack<T> - 1) * static_cast<std::int64_t>(sizeof(T));
}

template <class T, Row row>
__global__ void __launch_bounds__(kMostThreads, kResident) row_kernel(Rows<T> rows) {
  T* const logits = rows.logits + blockIdx.x * rows.stride;
  const std::int64_t target = rows.targets[blockIdx.x];
  if (target < 0) {
    if (rows.gradient_scale != 0.0F) { clear_row(logits, rows.classes); }
    return;
  }

  const auto misaligned = reinterpret_cast<std::uintptr_t>(logits) % 16 / sizeof(T);
  T* const keep =
      row == Row::kept ? static_cast<T*>(tessera::cuda::dynamic_shared()) + misaligned : nullptr;

  const ExpSum own = exp_sum<row>(logits, rows.classes, keep);
  // Loaded after the row, which would otherwise wait for the target and then for its logit, and
  // before the sums over the block, which hide the latency.
  const float target_logit = to_float(logits[target]);
  const float scale = rows.dynamic_scale == nullptr ? rows.gradient_scale
                                                    : rows.gradient_scale * *rows.dynamic_scale;
  // When this returns, every thread has read and kept its logits.
  const auto [max, sum] = block_exp_sum(own);
  if (threadIdx.x == 0) {
    // Large logits cancel before the logarithm is added.
    rows.losses[blockIdx.x] =
        log(sum) + (static_cast<double>(max) - static_cast<double>(target_logit));
  }
  if (scale == 0.0F) { return; }
  const auto factor = static_cast<float>(static_cast<double>(scale) / sum);
  write_gradient(row == Row::kept ? keep : logits, logits, rows.classes,
                 RowGradient{max, factor, scale, target});
}

template <class T>
void add_rows(const CrossEntropy& args, Stream stream) {
  WorkspaceCut workspace{stream};
  const auto room = static_cast<std::int64_t>(workspace.left_bytes() / sizeof(double));
  const std::int64_t most = std::min(room, args.rows);
  double* const losses = workspace.take<double>(most);
  Grid grid{.threads = static_cast<unsigned>(row_threads(args.classes))};
  const std::int64_t kept = kept_bytes<T>(args.classes);
  const bool keeps = kept + kBlockSumBytes <= tessera::cuda::most_shared_bytes();
  if (keeps) { grid.shared_bytes = static_cast<unsigned>(kept); }
  const auto kernel = keeps ? row_kernel<T, Row::kept> : row_kernel<T, Row::read_again>;
  for (std::int64_t first = 0; first < args.rows; first += most) {
    const std::int64_t rows = std::min(most, args.rows - first);
    grid.blocks = static_cast<unsigned>(rows);
    launch(kernel, grid, cuda_stream(stream).open(),
           Rows<T>{args.logits.as<T>() + first * args.row_elems(), args.targets + first, losses,
                   args.classes, args.row_elems(), args.gradient_scale, args.dynamic_scale});
    launch(add_losses_kernel, {1, kMostThreads}, cuda_stream(stream).open(), losses,
           args.targets + first, rows, args.loss_scale, args.loss, args.counted);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  if (args.rows == 0) { return; }
  with_device_type(args.logits.dtype,
                   [&]<class T>(std::type_identity<T>) { add_rows<T>(args, stream); });
}

}  // namespace tessera::kernels::cuda
