#pragma once

#include "device/stream_state.hpp"
#include "kernels/table.hpp"
#include "tessera/world/world.hpp"

namespace tessera::world {

/// The kernels of the rank's device, for the library's use of kernels that are not public
/// (kernels/table.hpp): the update of parameters, norms, the search for non-finite values.
[[nodiscard]] inline const kernels::Table& kernels_of(const World& world) noexcept {
  return *world.compute_stream().state()->kernels().table;
}

}  // namespace tessera::world
