#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of cross_entropy.
struct CrossEntropy {
  Values logits;                ///< [rows, classes], overwritten by their gradient
  const std::int32_t* targets;  ///< [rows], each in [0, classes), in device memory
  double* loss;                 ///< one number in device memory, added to
  std::int64_t rows;
  std::int64_t classes;
  float gradient_scale;                  ///< 0: the logits stay as they are
  double loss_scale;                     ///< of each row's loss, 1 / rows for a mean
  const float* dynamic_scale = nullptr;  ///< in device memory, read when the kernel runs; null: 1
  /// Elements from one row of logits to the next; 0: `classes`. Gaps are neither read nor written.
  std::int64_t stride = 0;

  [[nodiscard]] std::int64_t row_elems() const noexcept { return stride == 0 ? classes : stride; }
};

/// Computes softmax cross entropy, forward and backward in one. It turns logits into their gradient
/// in place, so that no second copy of the logits is held.
///
///   *loss += loss_scale * sum over rows of (log sum exp(logits[r]) - logits[r, target[r]]) (fp64)
///   logits[r, c] <- g * (softmax(logits[r])[c] - [c == target[r]])
///        with g = gradient_scale * *dynamic_scale in fp32
///
/// Bits:   a row's loss and gradient depend on that row alone. The losses are added in fp64: on a
///         CPU row by row in order, on CUDA in an order that depends on the number of rows alone.
/// Memory: CUDA uses the stream's workspace.
/// Errors: ContractError for a negative size, rows without classes, a stride shorter than a row, a
///         null array, or logits of fp64. Targets are not looked at before the kernel runs: the
///         caller checks them.
void cross_entropy(const CrossEntropy& args, Stream stream);

}  // namespace tessera::kernels
