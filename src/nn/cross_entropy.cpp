#include "tessera/nn/cross_entropy.hpp"

#include "tessera/kernels/cross_entropy.hpp"

namespace tessera::nn {

void CrossEntropy::forward(Values logits, const std::int32_t* targets, double* loss,
                           std::int64_t rows, const float* loss_scale) const {
  forward_part(logits, targets, loss, {.rows = rows, .all_rows = rows}, loss_scale);
}

void CrossEntropy::forward_part(Values logits, const std::int32_t* targets, double* loss, Part part,
                                const float* loss_scale) const {
  const auto count = static_cast<double>(part.all_rows);
  // The engine divides gradients by the number of micro-batches; the loss it takes as it is.
  kernels::cross_entropy({.logits = logits,
                          .targets = targets,
                          .loss = loss,
                          .rows = part.rows,
                          .classes = classes_,
                          .gradient_scale = static_cast<float>(1.0 / count),
                          .loss_scale = 1.0 / (count * micro_batches_),
                          .dynamic_scale = loss_scale,
                          .stride = row_elems_},
                         world_->compute_stream());
}

void CrossEntropy::evaluate(Values logits, const std::int32_t* targets, double* loss,
                            std::int64_t rows, std::int64_t all_rows) const {
  kernels::cross_entropy({.logits = logits,
                          .targets = targets,
                          .loss = loss,
                          .rows = rows,
                          .classes = classes_,
                          .gradient_scale = 0.0F,
                          .loss_scale = 1.0 / static_cast<double>(all_rows),
                          .stride = row_elems_},
                         world_->compute_stream());
}

}  // namespace tessera::nn
