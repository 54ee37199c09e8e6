#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// The mean over all tokens of -log softmax(logits)[target], averaged over the micro-batches of a
/// step. `forward` turns the logits in place into the gradient of the micro-batch's mean. It
/// borrows the World, on whose compute stream it runs.
class CrossEntropy {
 public:
  /// Takes logits of `classes` classes. Rows of logits lie `row_elems` elements apart; 0 means
  /// without gaps.
  CrossEntropy(World& world, std::int64_t classes, int micro_batches = 1,
               std::int64_t row_elems = 0) noexcept
      : world_{&world}, classes_{classes}, micro_batches_{micro_batches}, row_elems_{row_elems} {}

  /// Adds mean / micro_batches to *loss, which the caller zeroes at the beginning of a step, and
  /// overwrites logits [rows, classes] with their gradient. targets [rows] lie in [0, classes). The
  /// gradient, not the loss, is multiplied by *loss_scale (null: 1): see ShardedModel::loss_scale.
  /// All arrays are in device memory.
  void forward(Values logits, const std::int32_t* targets, double* loss, std::int64_t rows,
               const float* loss_scale = nullptr) const;

  /// Some rows of those whose mean is taken.
  struct Part {
    std::int64_t rows;      ///< in `logits` and `targets`
    std::int64_t all_rows;  ///< of the micro-batch
  };
  /// Does the same for a part of the rows: the gradient of each is, to the bit, what `forward` on
  /// all of them makes of the same logits. So is the loss, but for the order in which parts are
  /// added in fp64.
  void forward_part(Values logits, const std::int32_t* targets, double* loss, Part part,
                    const float* loss_scale = nullptr) const;
  /// Adds the part of these rows in the mean over `all_rows` to *loss, and leaves the logits
  /// unchanged.
  void evaluate(Values logits, const std::int32_t* targets, double* loss, std::int64_t rows,
                std::int64_t all_rows) const;

 private:
  World* world_;
  std::int64_t classes_;
  int micro_batches_;
  std::int64_t row_elems_;
};

}  // namespace tessera::nn
