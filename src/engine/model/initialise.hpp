#pragma once

#include "engine/unit/live_units.hpp"
#include "tessera/engine/init.hpp"

namespace tessera::engine {

/// Writes `initial`'s values into what this rank keeps of every unit, masters included. Waits for
/// the device. Throws what `initial` throws, and OutOfMemory.
void initialise(World& world, const LiveUnits& units, const Initializer& initial);

}  // namespace tessera::engine
