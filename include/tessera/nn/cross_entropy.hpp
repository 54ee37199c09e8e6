#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/nn/tensor_ranks.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// The mean over all tokens of -log softmax(logits)[target], averaged over the micro-batches of a
/// step. `forward` replaces the logits by the gradient of the micro-batch's mean. It borrows the
/// World, on whose compute stream it runs.
///
/// A target of kIgnoredTarget adds nothing. Means are over all tokens all the same: the number of
/// those that count is added to *counted, and the step divides by it (LossCount).
///
/// Ranks along `tensor` share the classes, as they share the tokens of an Embedding. Each rank has
/// the logits of its classes. Ranks exchange three numbers per row, never a logit: the largest
/// logit, the sum of exponentials and the target's logit. All ranks get the same bits of the loss.
/// The calls below are then collective, and take `statistics`: statistics_elems(rows) numbers in
/// device memory, which are overwritten. One rank needs none.
class CrossEntropy {
 public:
  /// Makes a loss over `classes` classes, counted over all ranks. This rank's rows of logits are
  /// `row_elems` elements apart; 0 means without gaps.
  CrossEntropy(World& world, std::int64_t classes, int micro_batches = 1,
               std::int64_t row_elems = 0, TensorRanks ranks = {});

  /// Returns this rank's classes.
  [[nodiscard]] Range classes() const noexcept { return classes_; }
  /// Returns the number of `statistics` for `rows` rows: three for each row and rank, or 0 on one
  /// rank.
  [[nodiscard]] std::int64_t statistics_elems(std::int64_t rows) const noexcept;

  /// Adds mean / micro_batches to *loss, which the caller zeroes at the beginning of a step, and
  /// overwrites logits [rows, classes] with their gradient. targets [rows] lie in [0, classes) of
  /// all ranks together. The gradient, not the loss, is multiplied by *loss_scale (null: 1): see
  /// ShardedModel::loss_scale. All arrays are in device memory.
  void forward(Values logits, const std::int32_t* targets, double* loss, std::int64_t rows,
               const float* loss_scale = nullptr, float* statistics = nullptr,
               double* counted = nullptr) const;

  /// A part of the rows whose mean is computed.
  struct Part {
    std::int64_t rows;      ///< rows of `logits` and `targets`
    std::int64_t all_rows;  ///< rows of the micro-batch
  };
  /// Does the same as `forward` for a part of the rows. Each gradient has the bits that `forward`
  /// computes on all rows from the same logits. The loss has them too, except for the order in
  /// which parts are added in fp64.
  void forward_part(Values logits, const std::int32_t* targets, double* loss, Part part,
                    const float* loss_scale = nullptr, float* statistics = nullptr,
                    double* counted = nullptr) const;
  /// Adds the losses of these rows, divided by `all_rows`, to *loss, and leaves the logits
  /// unchanged.
  void evaluate(Values logits, const std::int32_t* targets, double* loss, std::int64_t rows,
                std::int64_t all_rows, float* statistics = nullptr,
                double* counted = nullptr) const;

 private:
  struct Sums;
  void run(Values logits, const std::int32_t* targets, std::int64_t rows, const Sums& sums,
           float* statistics) const;

  World* world_;
  Range classes_;
  int micro_batches_;
  std::int64_t row_elems_;
  TensorRanks ranks_;
};

}  // namespace tessera::nn
