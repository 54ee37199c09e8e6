#pragma once

#include <cstdint>

namespace tessera {

/// bfloat16: the upper half of an IEEE-754 binary32. Storage only; arithmetic is done in float.
struct bfloat16 {
  std::uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of mantissa

  /// Rounds to nearest, ties to even. NaN becomes a quiet NaN, and overflow becomes infinity.
  [[nodiscard]] static bfloat16 from_float(float value) noexcept;
  /// Returns the same value as a float; exact.
  [[nodiscard]] float to_float() const noexcept;
};

/// IEEE-754 binary16. Storage only; arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of mantissa

  /// Rounds to nearest, ties to even, with subnormals. NaN becomes a quiet NaN, and overflow
  /// becomes infinity.
  [[nodiscard]] static float16 from_float(float value) noexcept;
  /// Returns the same value as a float; exact.
  [[nodiscard]] float to_float() const noexcept;
};

}  // namespace tessera
