#pragma once

#include <cstdint>

namespace tessera {

/// bfloat16: the upper half of an IEEE-754 binary32. Storage only; arithmetic is done in float.
struct bfloat16 {
  std::uint16_t bits = 0;

  /// Rounds to nearest, ties to even. NaN stays NaN (quiet), infinities and overflow to infinity.
  [[nodiscard]] static bfloat16 from_float(float value) noexcept;
  [[nodiscard]] float to_float() const noexcept;
};

/// IEEE-754 binary16. Storage only; arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;

  /// Rounds to nearest, ties to even, with subnormals. NaN stays NaN, overflow goes to infinity.
  [[nodiscard]] static float16 from_float(float value) noexcept;
  [[nodiscard]] float to_float() const noexcept;
};

}  // namespace tessera
