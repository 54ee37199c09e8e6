#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/normal/normal.hpp"
#include "kernels/support/host_device.hpp"
#include "tessera/base/philox.hpp"

namespace tessera::kernels {

struct FourNormals {
  float at[4];
};

/// The numbers of elements 4 * group to 4 * group + 3.
TESSERA_HOST_DEVICE inline FourNormals four_normals(const NormalKey& key,
                                                    std::uint64_t group) noexcept {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32U), key.id, 0U},
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32U)});
  FourNormals out{};
  for (std::size_t i = 0; i < 4; i += 2) {
    // u is in (0, 1]: the logarithm is finite.
    const double u = (static_cast<double>(words[i]) + 1.0) * 0x1p-32;
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[i + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    out.at[i] = static_cast<float>(radius * std::cos(angle));
    out.at[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return out;
}

}  // namespace tessera::kernels
