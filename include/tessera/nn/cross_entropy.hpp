#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// The mean over all tokens of -log softmax(logits)[target], averaged over the micro-batches of a
/// step. Turns the logits into the gradient of the micro-batch's mean in place.
class CrossEntropy {
 public:
  /// Rows of logits lie `row_elems` apart; 0: they follow each other without gaps.
  CrossEntropy(World& world, std::int64_t classes, int micro_batches = 1,
               std::int64_t row_elems = 0) noexcept
      : world_{&world}, classes_{classes}, micro_batches_{micro_batches}, row_elems_{row_elems} {}

  /// logits [rows, classes], targets [rows] in [0, classes). Adds mean / micro_batches to *loss
  /// (device memory): zero it at the beginning of a step. The gradient, not the loss, is multiplied
  /// by *loss_scale (device memory; null: 1): see ShardedModel::loss_scale.
  void forward(Values logits, const std::int32_t* targets, double* loss, std::int64_t rows,
               const float* loss_scale = nullptr) const;
  /// Adds the rows' part of the mean over `all_rows` to *loss; leaves the logits as they are.
  void evaluate(Values logits, const std::int32_t* targets, double* loss, std::int64_t rows,
                std::int64_t all_rows) const;

 private:
  World* world_;
  std::int64_t classes_;
  int micro_batches_;
  std::int64_t row_elems_;
};

}  // namespace tessera::nn
