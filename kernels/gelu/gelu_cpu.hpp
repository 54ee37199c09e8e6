#pragma once

#include "kernels/gelu/normal_cpu.hpp"

// The forms of GELU, eight elements at a time: gelu.hpp has their error bounds.
namespace tessera::kernels::cpu {

/// A function's values and slopes.
struct Activated {
  Vec value;
  Vec slope;
};

/// Clamps x to [-limit, limit]; NaN stays NaN.
[[gnu::always_inline]] inline Vec clamp(Vec x, float limit) {
  return min(splat(limit), max(splat(-limit), x));  // a NaN, as the second operand, stays
}

/// Let u = sqrt(2/pi) (x + 0.044715 x^3). Then 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), the logistic
/// function, which keeps its relative precision where 1 + tanh u cancels.
class GeluTanh {
 public:
  [[gnu::always_inline]] static Vec value(Vec x) {
    const Vec clamped = clamp(x, kForwardLimit);
    return x / (1.0F + exp_minus_2u(clamped, clamped * clamped));
  }
  /// The values far left of zero are below 1e-36 instead of 0.
  [[gnu::always_inline]] static Activated value_and_slope(Vec all) {
    const Vec x = clamp(all, kSlopeLimit);
    const Vec square = x * x;
    const Vec e = exp_minus_2u(x, square);
    const Vec logistic = 1.0F / (1.0F + e);
    const Vec rest = e * logistic;  // 1 - logistic without the cancellation
    const Vec inner = fma(square, splat(3.0F * kTwoScale * kCubic), splat(kTwoScale));
    return {max(splat(-kSlopeLimit), all) * logistic, fma(x * inner, rest * logistic, logistic)};
  }

 private:
  static constexpr float kTwoScale = 1.5957691216F;  // 2 sqrt(2/pi)
  static constexpr float kCubic = 0.044715F;
  // Beyond this limit the logistic function of 2u is 0 or 1 in fp32, and x^3 is still far from
  // overflow.
  static constexpr float kForwardLimit = 12.0F;
  // Beyond this limit the slope is below 1e-35 or 1 in fp32, and exp(-2u) is still finite.
  static constexpr float kSlopeLimit = 10.0F;

  /// exp(-2u), for a clamped x; `square` is x * x.
  [[gnu::always_inline]] static Vec exp_minus_2u(Vec x, Vec square) {
    return exp(x * fma(square, splat(-kTwoScale * kCubic), splat(-kTwoScale)));
  }
};

class GeluExact {
 public:
  [[gnu::always_inline]] static Vec value(Vec x) { return value_and_slope(x).value; }
  [[gnu::always_inline]] static Activated value_and_slope(Vec all) {
    const Vec x = clamp(all, kLimit);
    const NormalAt normal = normal_at(x);
    return {max(splat(-kLimit), all) * normal.below,
            fma(x * kDensityAtZero, normal.e, normal.below)};
  }

 private:
  static constexpr float kDensityAtZero = 0.3989422804F;  // 1 / sqrt(2 pi)
  // At this limit exp(-x^2 / 2) is 0 in fp32: value and slope are 0 on the left, x and 1 on the
  // right.
  static constexpr float kLimit = 14.5F;
};

}  // namespace tessera::kernels::cpu
