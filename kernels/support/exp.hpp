#pragma once

#include "kernels/support/vec.hpp"

namespace tessera::kernels {

/// e^x, lane by lane, without branches or calls: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial
/// of degree 6 in r, times 2^n in two factors so that neither overflows before the result does.
///
/// Error:  below 2 ulp where the result is normal; results below 2^-126 lose bits as they must.
/// Limits: 0 below -104, infinity above 88.73, NaN stays NaN.
[[gnu::always_inline]] inline Vec exp(Vec x) noexcept {
  constexpr float low = -104.0F;
  constexpr float high = 89.0F;
  x = x < low ? splat(low) : x;
  x = x > high ? splat(high) : x;

  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits.
  constexpr float magic = 12582912.0F;
  const Vec shifted = x * 1.44269504F + magic;
  const Vec n = shifted - magic;
  // ln 2 in two parts: n times the first (9 bits) is exact.
  const Vec r = (x - n * 0.693359375F) - n * -2.12194440e-4F;

  Vec p = splat(1.0F / 720.0F);
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = (p * r) * r + r;
  p = p + 1.0F;

  using Bits = std::uint32_t __attribute__((vector_size(32)));
  const IntVec exponent = (IntVec)shifted - 0x4B400000;  // the bits of `magic`
  const IntVec half = exponent >> 1;
  const Vec first = (Vec)((Bits)(half + 127) << 23);
  const Vec second = (Vec)((Bits)(exponent - half + 127) << 23);
  return p * first * second;
}

}  // namespace tessera::kernels
