#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/step_scalars/step_scalars.hpp"
#include "kernels/support/host_device.hpp"

namespace tessera::kernels {

/// The factors of one step of Adam or AdamW, the same for every element.
struct AdamFactors {
  float gradient;  ///< average and clip
  float lr_t;      ///< lr / (1 - b1^t)
  float v_scale;   ///< 1 / sqrt(1 - b2^t)
};

/// b^t by squaring, t >= 0. It uses only correctly rounded products, so a processor and a GPU get
/// the same bits; their libraries' `pow` may differ. The relative error is below t 2^-53: each
/// squaring doubles the error so far and adds 2^-53.
TESSERA_HOST_DEVICE inline double power(double b, std::int64_t t) noexcept {
  double result = 1.0;
  for (; t > 0; t >>= 1U) {
    if ((t & 1) != 0) { result *= b; }
    b *= b;
  }
  return result;
}

/// Computes in fp64 and rounds each factor to fp32 once. 1 - b^t has a relative error below 2^-53 /
/// (1 - b), which for an fp32 b is at most 2^-29: far less than that rounding.
template <class Hyper>
TESSERA_HOST_DEVICE AdamFactors adam_factors(const Hyper& hyper,
                                             const StepScalars& scalars) noexcept {
  const double m_left = 1.0 - power(static_cast<double>(hyper.beta1), scalars.updates);
  const double v_left = 1.0 - power(static_cast<double>(hyper.beta2), scalars.updates);
  return {scalars.gradient_factor, static_cast<float>(static_cast<double>(hyper.lr) / m_left),
          static_cast<float>(1.0 / std::sqrt(v_left))};
}

}  // namespace tessera::kernels
