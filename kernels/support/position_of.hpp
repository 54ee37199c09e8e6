#pragma once

#include <cstdint>

#include "kernels/support/host_device.hpp"

namespace tessera::kernels {

/// The position of token `t` of a sample within its document, which begins at `first_key[row]`
/// (AttentionForward::first_key). `row` counts the tokens of all samples before it.
TESSERA_HOST_DEVICE constexpr std::int64_t position_of(const std::int32_t* first_key,
                                                       std::int64_t row, std::int64_t t) noexcept {
  if (first_key == nullptr) { return t; }
  const std::int64_t first = first_key[row];
  return first < 0 ? t : first > t ? 0 : t - first;
}

}  // namespace tessera::kernels
