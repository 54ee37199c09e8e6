#pragma once

#include "tessera/world/world.hpp"

namespace tessera::torch {

/// *Collective.* Ranks that make another call than `call` get an error that names both: a rank that
/// saves or reads parameters alone, as a trainer under DistributedDataParallel does, would wait in
/// a call that the others' next collective does not meet. Waits.
void meet(World& world, const char* call);

}  // namespace tessera::torch
