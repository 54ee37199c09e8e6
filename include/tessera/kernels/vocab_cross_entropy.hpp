#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

// Cross entropy where each rank has the logits of some classes. Each rank computes three numbers
// for every row, the ranks exchange them, and each replaces its logits by their gradient.

/// The number of statistics of a row over one part of the classes: the largest logit, the sum of
/// exp(logit - largest), and the target's logit, or 0 if another part has it. A part without
/// classes has -infinity, 0, 0.
inline constexpr std::int64_t kRowStatistics = 3;

/// Arguments of vocab_statistics.
struct VocabStatistics {
  ConstValues logits;           ///< [rows, classes]
  const std::int32_t* targets;  ///< [rows], among all classes or kIgnoredTarget, in device memory
  float* statistics;            ///< [rows, kRowStatistics], overwritten
  std::int64_t rows;            ///< number of rows, one a token
  std::int64_t classes;         ///< number of classes in this part; may be 0
  std::int64_t first_class;     ///< index of this part's first class among all classes
  /// Elements from one row of logits to the next; 0: `classes`. Gaps are not read.
  std::int64_t stride = 0;

  /// Returns `stride` in elements, with 0 resolved.
  [[nodiscard]] std::int64_t row_elems() const noexcept { return stride == 0 ? classes : stride; }
};

/// Computes the statistics of every row: see kRowStatistics.
///
/// Bits:   the statistics of a row depend on that row only.
/// Errors: ContractError for a negative size, a stride shorter than a row, a null array, or logits
///         of fp64. Targets are not checked: the caller does that.
void vocab_statistics(const VocabStatistics& args, Stream stream);

/// Arguments of vocab_cross_entropy.
struct VocabCrossEntropy {
  Values logits;                ///< [rows, classes], overwritten by their gradient
  const std::int32_t* targets;  ///< [rows], among all classes or kIgnoredTarget, in device memory
  const float* statistics;      ///< [parts, rows, kRowStatistics]
  std::int64_t parts;           ///< number of parts of the classes
  double* loss;                 ///< one number in device memory, added to
  std::int64_t rows;            ///< number of rows, one a token
  std::int64_t classes;         ///< number of classes in this part; may be 0
  std::int64_t first_class;     ///< index of this part's first class among all classes
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

/// Computes what cross_entropy computes, for one part of the classes. It combines the statistics of
/// a row over all parts, in their order and in fp64. The loss of all classes is added to *loss.
/// Rows of kIgnoredTarget are treated as in cross_entropy.
///
/// Bits:   the loss depends on the statistics only, so that all parts compute the same loss. The
///         gradient of a row depends on that row only. The sum is rounded to fp32 between the two
///         kernels: the loss of a row is within 2^-24 of that of cross_entropy, and its softmax
///         within 2^-23 of its value, beside the rounding of the exponentials.
/// Memory: CUDA uses the stream's workspace.
/// Errors: those of vocab_statistics, and ContractError for rows without parts.
void vocab_cross_entropy(const VocabCrossEntropy& args, Stream stream);

}  // namespace tessera::kernels
