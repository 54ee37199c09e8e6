#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tessera::kernels {

/// Magnitudes as codes of 4 + M bits, relative to the scale s of their block:
///
///   x = s (2^e (1 + f) - 1)        code = 2^M (e + f)
///
/// with e in [0, 16) and f a multiple of 2^-M below 1.
///
/// Code 0 is 0. Small values are s 2^-M apart, large ones 2^-M of the power of two below them: a
/// logarithm with a linear start, whose largest value is 2^19 or 2^20 times the smallest. The code
/// is the top bits of x / s + 1.
///
/// s is a power of two, so every value is exact. It is the smallest power, from 2^-119 on, for
/// which the largest magnitude of the block has a code. A magnitude above `kLargest`, or NaN,
/// counts as `kLargest`: every code stands for a finite value.
///
/// A value between two codes is rounded at random: with a random r of 16 bits, x becomes the upper
/// code if it lies more than (r + 1/2) / 2^16 of the gap above the lower.
template <int M, std::uint32_t LargestBits>
struct MagnitudeCode {
  static constexpr float kLargest = std::bit_cast<float>(LargestBits);
  /// The value of the greatest code at a scale of 1.
  static constexpr float kMost = static_cast<float>((1U << 16U) - (1U << (15U - M)) - 1U);

  /// The bits of |x|, which sort like the magnitudes.
  [[nodiscard]] static constexpr std::uint32_t magnitude(float x) noexcept {
    return std::min(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU, LargestBits);
  }
  /// The scale of a block whose largest magnitude is `magnitude`.
  [[nodiscard]] static constexpr float scale(std::uint32_t magnitude) noexcept {
    constexpr std::uint32_t most = std::bit_cast<std::uint32_t>(kMost) & 0x7FFFFFU;
    // A magnitude above kMost of its own exponent takes the next exponent.
    const auto exponent = static_cast<int>((magnitude + 0x7FFFFFU - most) >> 23U) - 15;
    return std::bit_cast<float>(static_cast<std::uint32_t>(std::max(exponent, 8)) << 23U);
  }
  [[nodiscard]] static constexpr float inverse(float scale) noexcept {
    return std::bit_cast<float>((254U << 23U) - std::bit_cast<std::uint32_t>(scale));
  }
  /// The product is exact, except where it is too small to matter within a gap.
  [[nodiscard]] static constexpr std::uint32_t code(std::uint32_t magnitude, float inverse,
                                                    std::uint32_t random) noexcept {
    const float place = std::bit_cast<float>(magnitude) * inverse + 1.0F;
    const std::uint32_t chance = ((0xFFFFU - random) << (kDropped - 16U)) + kHalf - 1U;
    return ((std::bit_cast<std::uint32_t>(place) + chance) >> kDropped) - kZero;
  }
  [[nodiscard]] static constexpr float value(std::uint32_t code, float scale) noexcept {
    return (std::bit_cast<float>((code + kZero) << kDropped) - 1.0F) * scale;
  }

 private:
  static constexpr std::uint32_t kDropped = 23U - M;
  static constexpr std::uint32_t kHalf = 1U << (kDropped - 17U);
  static constexpr std::uint32_t kZero = 127U << M;  // the bits of 1
};

/// The first moment: its magnitude, with the sign as the highest bit.
struct FirstCode : MagnitudeCode<3, 0x7F000000> {  // 2^127
  [[nodiscard]] static constexpr std::uint32_t encode(float m, float inverse,
                                                      std::uint32_t random) noexcept {
    const std::uint32_t sign = (std::bit_cast<std::uint32_t>(m) >> 24U) & 0x80U;
    return sign | code(magnitude(m), inverse, random);
  }
  [[nodiscard]] static constexpr float decode(std::uint32_t code, float scale) noexcept {
    const float x = value(code & 0x7FU, scale);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | (code & 0x80U) << 24U);
  }
};

/// The second moment, stored as its square root, whose range is that of the first. Positive values
/// stay positive: Adam divides by it, and since |m| <= K sqrt(v), its smallest code is at least 1 /
/// (2 K) of the first moment's.
/// part of the first moment's.
struct SecondCode : MagnitudeCode<4, 0x5F000000> {  // 2^63
  [[nodiscard]] static constexpr std::uint32_t encode(float root, float inverse,
                                                      std::uint32_t random) noexcept {
    const std::uint32_t bits = magnitude(root);
    return std::max(code(bits, inverse, random), bits == 0 ? 0U : 1U);
  }
  [[nodiscard]] static constexpr float decode(std::uint32_t code, float scale) noexcept {
    const float root = value(code, scale);
    return root * root;
  }
};

}  // namespace tessera::kernels
