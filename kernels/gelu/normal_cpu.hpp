#pragma once

#include "kernels/support/exp.hpp"

namespace tessera::kernels::cpu {

/// The standard normal distribution at x.
struct NormalAt {
  Vec below;  ///< the probability of a value below x
  Vec e;      ///< exp(-x^2 / 2)
};

/// The largest error of tail_ratio, in units of 2^-24 of its value.
inline constexpr double kTailRatioError = 6.0;

/// The probability of a normal value above z, times exp(z^2 / 2), for z in [0, 14.5]: a polynomial
/// P
/// of degree 10 in s = (z - 3) / (z + 3), divided by z + 3. (Shepherd and Laframboise 1981 expand
/// exp(x^2) erfc(x) in this way.) P interpolates the exact function, as computed with 40 digits, at
/// the Chebyshev points of s. It is within 0.06 units of 2^-24 of it; the other error is rounding.
[[gnu::always_inline]] inline Vec tail_ratio(Vec z) noexcept {
  const Vec t = 1.0F / (z + 3.0F);
  const Vec s = fma(t, splat(-6.0F), splat(1.0F));
  Vec p = splat(5.535596574e-5F);
  p = fma(p, s, splat(1.331259118e-4F));
  p = fma(p, s, splat(-2.445826540e-4F));
  p = fma(p, s, splat(-1.034222078e-3F));
  p = fma(p, s, splat(1.024135738e-3F));
  p = fma(p, s, splat(6.969813257e-3F));
  p = fma(p, s, splat(-1.046229340e-2F));
  p = fma(p, s, splat(-4.726274684e-2F));
  p = fma(p, s, splat(2.300176769e-1F));
  p = fma(p, s, splat(-5.093320012e-1F));
  p = fma(p, s, splat(7.290837169e-1F));
  return p * t;
}

/// For x in [-14.5, 14.5]. The probability keeps its relative precision far left of zero.
[[gnu::always_inline]] inline NormalAt normal_at(Vec x) noexcept {
  const Vec e = exp(x * x * -0.5F);
  const Vec tail = e * tail_ratio(max(-x, x));  // a NaN stays
  return {x < 0.0F ? tail : 1.0F - tail, e};
}

}  // namespace tessera::kernels::cpu
