#pragma once

#include <bit>
#include <cstdint>

#include "kernels/support/host_device.hpp"

namespace tessera::kernels {

/// The numbers that codes of `Bits` bits stand for, in ascending order, and the midpoints between
/// neighbours, rounded to fp32.
template <int Bits>
struct CodeMap {
  static constexpr int kCodes = 1 << Bits;
  alignas(64) float values[kCodes];
  alignas(64) float midpoints[kCodes];  ///< the last is not used

  /// The number of midpoints below x; 0 for a NaN.
  [[nodiscard]] TESSERA_HOST_DEVICE constexpr std::uint32_t code(float x) const noexcept {
    std::uint32_t code = 0;
    for (std::uint32_t half = kCodes / 2; half > 0; half /= 2) {
      if (x > midpoints[code + half - 1]) { code += half; }
    }
    return code;
  }
};

template <int Bits>
constexpr void set_midpoints(CodeMap<Bits>& map) noexcept {
  for (int i = 0; i + 1 < map.kCodes; ++i) {
    map.midpoints[i] = (map.values[i] + map.values[i + 1]) / 2.0F;
  }
}

/// NF4: quantiles of a normal distribution, scaled to [-1, 1], with an exact 0 (Dettmers et al.
/// 2023, appendix E, with the digits of bitsandbytes).
[[nodiscard]] constexpr CodeMap<4> make_nf4_map() noexcept {
  CodeMap<4> map{.values = {-1.0F, -0.6961928009986877F, -0.5250730514526367F,
                            -0.39491748809814453F, -0.28444138169288635F, -0.18477343022823334F,
                            -0.09105003625154495F, 0.0F, 0.07958029955625534F, 0.16093020141124725F,
                            0.24611230194568634F, 0.33791524171829224F, 0.44070982933044434F,
                            0.5626170039176941F, 0.7229568362236023F, 1.0F},
                 .midpoints = {}};
  set_midpoints(map);
  return map;
}

/// The signed dynamic map of 8 bits (Dettmers 2015, bitsandbytes' create_dynamic_map): 0, 1, and
/// for each power of ten from 10^-6 on the middles of 1, 2, 4 ... 64 equal parts of [0.1, 1] times
/// it, of both signs. In fp32, with the roundings of torch.linspace on processors with fused
/// multiplication and addition; on others it has neighbours of 42 of the numbers.
[[nodiscard]] constexpr CodeMap<8> make_dynamic_map() noexcept {
  constexpr float powers[] = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
  CodeMap<8> map{};
  int above = 128;
  for (int e = 0; e < 7; ++e) {
    const int parts = 1 << e;
    const float step = (1.0F - 0.1F) / static_cast<float>(parts);
    const auto boundary = [=](int i) {
      const bool below = i < (parts + 1) / 2;
      const double exact = below ? 0.1F + static_cast<double>(step) * i
                                 : 1.0 - static_cast<double>(step) * (parts - i);
      return static_cast<float>(exact);
    };
    for (int i = 0; i < parts; ++i, ++above) {
      const float middle = (boundary(i) + boundary(i + 1)) / 2.0F;
      map.values[above] = powers[e] * middle;
      map.values[254 - above] = -map.values[above];
    }
  }
  map.values[255] = 1.0F;
  set_midpoints(map);
  return map;
}

inline constexpr CodeMap<4> kNF4Map = make_nf4_map();
inline constexpr CodeMap<8> kDynamicMap = make_dynamic_map();

/// Magnitudes are compared as bits, which sort like them: a NaN is the largest. Returns that of the
/// bits, with one form of NaN.
[[nodiscard]] TESSERA_HOST_DEVICE constexpr float magnitude_of(std::uint32_t bits) noexcept {
  return std::bit_cast<float>(bits > 0x7F800000U ? 0x7FC00000U : bits);
}

/// 1 / largest, for a largest magnitude so small that this is infinite a finite factor.
[[nodiscard]] TESSERA_HOST_DEVICE constexpr float code_factor(float largest) noexcept {
  return 1.0F / (largest > 1e-38F ? largest : 1e-38F);
}

/// The scale of codes up to 127 and its inverse, which is finite and normal for every finite
/// `largest`.
struct Int8Scale {
  float scale;
  float factor;

  [[nodiscard]] TESSERA_HOST_DEVICE static constexpr Int8Scale of(float largest) noexcept {
    const float m = largest < 0x1p-100F ? 0x1p-100F : largest;
    return {m / 127.0F, 127.0F / m};
  }
};

/// Added to a float of at most 2^22 in magnitude, leaves the nearest integer (ties to even) in the
/// low bits.
inline constexpr float kRoundingShift = 12582912.0F;  // 1.5 * 2^23

}  // namespace tessera::kernels
