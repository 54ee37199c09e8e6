#pragma once

#include <algorithm>
#include <chrono>

#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

/// Ranks that wait for their own disk meet at least this often, so that none is taken for lost.
[[nodiscard]] inline std::chrono::milliseconds longest_wait(const World& world) {
  return std::min<std::chrono::milliseconds>(world.options().deadline / 4, std::chrono::seconds{1});
}

}  // namespace tessera::checkpoint
