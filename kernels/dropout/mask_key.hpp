#pragma once

#include <array>
#include <cstdint>

#include "kernels/dropout/dropout.hpp"
#include "tessera/base/philox.hpp"

namespace tessera::kernels {

/// Philox's key for all masks of a site in a step.
[[nodiscard]] inline std::array<std::uint32_t, 2> mask_key(const DropoutKey& key) noexcept {
  constexpr std::uint32_t tag = 0x64726F70;  // distinguishes masks from other uses of the seed
  const auto step = static_cast<std::uint64_t>(key.step);
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32U), key.site, tag},
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32U)});
  return {words[0], words[1]};
}

}  // namespace tessera::kernels
