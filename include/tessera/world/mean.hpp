#pragma once

#include "tessera/world/world.hpp"

namespace tessera {

/// *Collective.* Returns the mean of the ranks' values, with the same bits on every rank: they are
/// added in the order of ranks. It is for decisions that all ranks take alike, such as an early
/// stop by a validation loss. It waits for all ranks: call it rarely, not in every step.
///
///     if (tessera::mean(world, validation_loss) > best) { break; }
[[nodiscard]] double mean(World& world, double value);

}  // namespace tessera
