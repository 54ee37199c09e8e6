#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

// Cross entropy where each rank has the logits of some classes. Each rank finds three numbers for
// every row, the ranks exchange them, and each turns its logits into their gradient.

/// The numbers of a row and part of the classes: the largest logit; the sum of exp(logit - that);
/// and the target's logit, or 0 where another part has it. Of no classes they are -infinity, 0, 0.
inline constexpr std::int64_t kRowStatistics = 3;

/// Arguments of vocab_statistics.
struct VocabStatistics {
  ConstValues logits;           ///< [rows, classes]
  const std::int32_t* targets;  ///< [rows], of all classes, in device memory
  float* statistics;            ///< [rows, kRowStatistics], overwritten
  std::int64_t rows;
  std::int64_t classes;      ///< of this part; may be 0
  std::int64_t first_class;  ///< of this part, among all classes
  /// Elements from one row of logits to the next; 0: `classes`. Gaps are not read.
  std::int64_t stride = 0;

  [[nodiscard]] std::int64_t row_elems() const noexcept { return stride == 0 ? classes : stride; }
};

/// Computes the statistics of every row.
///
/// Bits:   a row's depend on that row alone.
/// Errors: ContractError for a negative size, a stride shorter than a row, a null array, or logits
///         of fp64. Targets are not looked at before the kernel runs: the caller checks them.
void vocab_statistics(const VocabStatistics& args, Stream stream);

/// Arguments of vocab_cross_entropy.
struct VocabCrossEntropy {
  Values logits;                ///< [rows, classes], overwritten by their gradient
  const std::int32_t* targets;  ///< [rows], of all classes, in device memory
  const float* statistics;      ///< [parts, rows, kRowStatistics]
  std::int64_t parts;
  double* loss;  ///< one number in device memory, added to
  std::int64_t rows;
  std::int64_t classes;                  ///< of this part; may be 0
  std::int64_t first_class;              ///< of this part, among all classes
  float gradient_scale;                  ///< 0: the logits stay as they are
  double loss_scale;                     ///< of each row's loss, 1 / rows for a mean
  const float* dynamic_scale = nullptr;  ///< in device memory, read when the kernel runs; null: 1
  /// Elements from one row of logits to the next; 0: `classes`. Gaps are neither read nor written.
  std::int64_t stride = 0;

  [[nodiscard]] std::int64_t row_elems() const noexcept { return stride == 0 ? classes : stride; }
};

/// Does what cross_entropy does, with the largest logit, the sum and the target's logit of a row
/// put together from all parts, in their order and in fp64. *loss gets the loss of all classes.
///
/// Bits:   the loss depends on the statistics alone, so that all parts have the same, and the
///         gradient of a row on that row. A sum is rounded to fp32 on the way: the loss of a row is
///         within 2^-24 of that of cross_entropy, and a softmax within 2^-23 of itself, beside the
///         exponentials' rounding.
/// Memory: CUDA uses the stream's workspace.
/// Errors: as vocab_statistics, and ContractError for rows without parts.
void vocab_cross_entropy(const VocabCrossEntropy& args, Stream stream);

}  // namespace tessera::kernels
