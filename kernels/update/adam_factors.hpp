#pragma once

#include <cmath>

#include "kernels/step_scalars/step_scalars.hpp"

namespace tessera::kernels {

/// What one step of Adam or AdamW multiplies by, the same for every element.
struct AdamFactors {
  float gradient;  ///< average and clip
  float lr_t;      ///< lr / (1 - b1^t)
  float v_scale;   ///< 1 / sqrt(1 - b2^t)
};

template <class Hyper>
AdamFactors adam_factors(const Hyper& hyper, const StepScalars& scalars) noexcept {
  const auto t = static_cast<double>(scalars.updates);
  const double m_left = 1.0 - std::pow(static_cast<double>(hyper.beta1), t);
  const double v_left = 1.0 - std::pow(static_cast<double>(hyper.beta2), t);
  return {scalars.gradient_factor, static_cast<float>(static_cast<double>(hyper.lr) / m_left),
          static_cast<float>(1.0 / std::sqrt(v_left))};
}

}  // namespace tessera::kernels
