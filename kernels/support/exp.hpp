#pragma once

#include "kernels/support/vec.hpp"

namespace tessera::kernels {

/// The largest error of `exp` for a normal result, in units in the last place.
inline constexpr double kExpUlps = 1.0;

/// e^x, lane by lane, without branches or calls: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial
/// of degree 6 in r, times 2^n in two factors so that neither overflows before the result does.
///
/// Error:  below kExpUlps for normal results; results below 2^-126 lose bits, as subnormals do.
/// Limits: 0 below -104, infinity above 88.73, NaN stays NaN.
[[gnu::always_inline]] inline Vec exp(Vec x) noexcept {
  x = min(splat(89.0F), max(splat(-104.0F), x));  // a NaN, as the second operand, stays

  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits.
  const Vec magic = splat(12582912.0F);
  const Vec shifted = fma(x, splat(1.44269504F), magic);
  const Vec n = shifted - magic;
  // ln 2 in two parts: n times the first (9 bits) is exact.
  const Vec r = fma(n, splat(2.12194440e-4F), fma(n, splat(-0.693359375F), x));

  // (e^r - 1 - r) / r^2 by the polynomial whose error in e^r is least: 0.05 units of 2^-24.
  Vec p = splat(1.381457885e-3F);
  p = fma(p, r, splat(8.368725351e-3F));
  p = fma(p, r, splat(4.166838890e-2F));
  p = fma(p, r, splat(1.666652056e-1F));
  p = fma(p, r, splat(4.999999344e-1F));
  p = fma(p * r, r, r) + 1.0F;

  using Bits = std::uint32_t __attribute__((vector_size(32)));
  const IntVec exponent = (IntVec)shifted - 0x4B400000;  // the bits of `magic`
  const IntVec half = exponent >> 1;
  const Vec first = (Vec)((Bits)(half + 127) << 23);
  const Vec second = (Vec)((Bits)(exponent - half + 127) << 23);
  return p * first * second;
}

}  // namespace tessera::kernels
