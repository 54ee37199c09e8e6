#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/support/host_device.hpp"
#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"

namespace tessera::kernels {

/// Statistics of a whole row, from all its parts.
struct RowParts {
  float max;     ///< the largest logit
  double sum;    ///< of exp(logit - max)
  float target;  ///< the target's logit

  // Large logits cancel before the logarithm is added.
  [[nodiscard]] TESSERA_HOST_DEVICE double loss() const {
    return std::log(sum) + (static_cast<double>(max) - static_cast<double>(target));
  }
};

/// The parts of row `row` of statistics [parts, rows, kRowStatistics], in the order of parts.
[[nodiscard]] TESSERA_HOST_DEVICE inline RowParts row_parts(const float* statistics,
                                                            std::int64_t parts, std::int64_t rows,
                                                            std::int64_t row) {
  const auto part = [=](std::int64_t p) { return statistics + (p * rows + row) * kRowStatistics; };
  RowParts all{part(0)[0], 0.0, 0.0F};
  for (std::int64_t p = 1; p < parts; ++p) { all.max = std::fmax(all.max, part(p)[0]); }
  for (std::int64_t p = 0; p < parts; ++p) {
    const float max = part(p)[0];
    const double less = static_cast<double>(max) - static_cast<double>(all.max);
    all.sum += static_cast<double>(part(p)[1]) * (max == all.max ? 1.0 : std::exp(less));
    all.target += part(p)[2];
  }
  return all;
}

}  // namespace tessera::kernels
