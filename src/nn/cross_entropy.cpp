#include "tessera/nn/cross_entropy.hpp"

#include <utility>

#include "nn/layer.hpp"
#include "nn/vocab_cut.hpp"
#include "tessera/base/error.hpp"
#include "tessera/kernels/cross_entropy.hpp"
#include "tessera/kernels/vocab_cross_entropy.hpp"

namespace tessera::nn {

/// Where losses and counts are added, and the factors of losses and gradients.
struct CrossEntropy::Sums {
  double* loss;
  double* counted;
  double loss_scale;
  float gradient_scale = 0.0F;
  const float* dynamic_scale = nullptr;
};

CrossEntropy::CrossEntropy(World& world, std::int64_t classes, int micro_batches,
                           std::int64_t row_elems, TensorRanks ranks)
    : world_{&world},
      classes_{part_of(classes, vocab_cut(world), ranks)},
      micro_batches_{micro_batches},
      row_elems_{row_elems},
      ranks_{std::move(ranks)} {}

std::int64_t CrossEntropy::statistics_elems(std::int64_t rows) const noexcept {
  return ranks_.size() == 1 ? 0 : kernels::kRowStatistics * ranks_.size() * rows;
}

void CrossEntropy::forward(Values logits, const std::int32_t* targets, double* loss,
                           std::int64_t rows, const float* loss_scale, float* statistics,
                           double* counted) const {
  forward_part(logits, targets, loss, {.rows = rows, .all_rows = rows}, loss_scale, statistics,
               counted);
}

void CrossEntropy::forward_part(Values logits, const std::int32_t* targets, double* loss, Part part,
                                const float* loss_scale, float* statistics, double* counted) const {
  const auto count = static_cast<double>(part.all_rows);
  // The engine divides gradients by the number of micro-batches, but not the loss.
  run(logits, targets, part.rows,
      {.loss = loss,
       .counted = counted,
       .loss_scale = 1.0 / (count * micro_batches_),
       .gradient_scale = static_cast<float>(1.0 / count),
       .dynamic_scale = loss_scale},
      statistics);
}

void CrossEntropy::evaluate(Values logits, const std::int32_t* targets, double* loss,
                            std::int64_t rows, std::int64_t all_rows, float* statistics,
                            double* counted) const {
  run(logits, targets, rows,
      {.loss = loss, .counted = counted, .loss_scale = 1.0 / static_cast<double>(all_rows)},
      statistics);
}

void CrossEntropy::run(Values logits, const std::int32_t* targets, std::int64_t rows,
                       const Sums& sums, float* statistics) const {
  if (ranks_.size() == 1) {
    return kernels::cross_entropy({.logits = logits,
                                   .targets = targets,
                                   .loss = sums.loss,
                                   .rows = rows,
                                   .classes = classes_.elems,
                                   .gradient_scale = sums.gradient_scale,
                                   .loss_scale = sums.loss_scale,
                                   .dynamic_scale = sums.dynamic_scale,
                                   .stride = row_elems_,
                                   .counted = sums.counted},
                                  world_->compute_stream());
  }
  const std::int64_t elems = kernels::kRowStatistics * rows;
  expects(statistics != nullptr || rows == 0,
          "CrossEntropy: ranks along tensor need memory for statistics; pass it");
  kernels::vocab_statistics({.logits = logits,
                             .targets = targets,
                             .statistics = statistics + ranks_.index() * elems,
                             .rows = rows,
                             .classes = classes_.elems,
                             .first_class = classes_.first,
                             .stride = row_elems_},
                            world_->compute_stream());
  ranks_.all_gather(statistics, elems);
  kernels::vocab_cross_entropy({.logits = logits,
                                .targets = targets,
                                .statistics = statistics,
                                .parts = ranks_.size(),
                                .loss = sums.loss,
                                .rows = rows,
                                .classes = classes_.elems,
                                .first_class = classes_.first,
                                .gradient_scale = sums.gradient_scale,
                                .loss_scale = sums.loss_scale,
                                .dynamic_scale = sums.dynamic_scale,
                                .stride = row_elems_,
                                .counted = sums.counted},
                               world_->compute_stream());
}

}  // namespace tessera::nn
