#pragma once

#include "device/stream_state.hpp"
#include "kernels/table.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The kernels of the rank's device, for what the library computes with those that are not public
/// (kernels/table.hpp): the update of parameters, norms, the search for values that are not finite.
[[nodiscard]] inline const kernels::Table& kernels_of(const World& world) noexcept {
  return *world.compute_stream().state()->kernels().table;
}

}  // namespace tessera
