#pragma once

#include <span>

#include "engine/rules/unit_rules.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// Throws ConfigError that names the parameter if moments of 8 bits are asked for, and `ranks`
/// ranks along `tensor` would cut a trained parameter within blocks of kMomentBlock elements: a
/// block has one scale, which belongs to one rank. It is the same on all ranks.
void check_moment_blocks(std::span<const DeclaredUnit> units, int ranks,
                         const OptimizerOptions& update);

}  // namespace tessera::engine
