#pragma once

#include "engine/unit/live_units.hpp"
#include "tessera/engine/init.hpp"

namespace tessera::engine {

/// Writes `initial`'s values, also to masters, into what this rank keeps of every unit. Waits for
/// the device. Throws OutOfMemory and any exception of `initial`.
void initialise(World& world, const LiveUnits& units, const Initializer& initial);

}  // namespace tessera::engine
