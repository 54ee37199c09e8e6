#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of cross_entropy.
struct CrossEntropy {
  Values logits;                ///< [rows, classes], overwritten by their gradient
  const std::int32_t* targets;  ///< [rows], in [0, classes) or kIgnoredTarget, in device memory
  double* loss;                 ///< one number in device memory, added to
  std::int64_t rows;            ///< number of rows, one a token
  std::int64_t classes;         ///< number of classes
  float gradient_scale;         ///< factor of the gradients; 0: the logits stay as they are
  double loss_scale;            ///< factor of each row's loss, 1 / rows for a mean
  /// A further factor of the gradients, in device memory, read when the kernel runs; null: 1.
  const float* dynamic_scale = nullptr;
  /// Elements from one row of logits to the next; 0: `classes`. Gaps are neither read nor written.
  std::int64_t stride = 0;
  /// One number in device memory, to which the number of rows that count is added; null: it is not
  /// needed.
  double* counted = nullptr;

  /// Returns `stride` in elements, with 0 resolved.
  [[nodiscard]] std::int64_t row_elems() const noexcept { return stride == 0 ? classes : stride; }
};

/// Computes softmax cross entropy, forward and backward in one call. It replaces the logits by
/// their gradient, and needs no second copy of them.
///
///     *loss += loss_scale * sum over rows of (log sum exp(logits[r]) - logits[r, target[r]])
///     logits[r, c] <- g * (softmax(logits[r])[c] - [c == target[r]])
///          with g = gradient_scale * *dynamic_scale in fp32
///
/// A row whose target is kIgnoredTarget (base/ignored_target.hpp) adds nothing, whatever its logits
/// are, and its gradient is 0.
///
/// Bits:   a row's loss and gradient depend on that row only. The losses are added in fp64: on a
///         CPU row by row in order, on CUDA in an order that depends on the number of rows only.
/// Memory: CUDA uses the stream's workspace.
/// Errors: ContractError for a negative size, rows without classes, a stride shorter than a row, a
///         null array, or logits of fp64. Targets are not checked: the caller does that.
void cross_entropy(const CrossEntropy& args, Stream stream);

}  // namespace tessera::kernels
