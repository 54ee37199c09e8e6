#pragma once

#include <span>

#include "engine/rules/unit_rules.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// Throws ConfigError naming the parameter if the moments have 8 bits and `ranks` ranks along
/// `tensor` would cut a trained parameter within a block of kMomentBlock elements: a block has one
/// scale, which belongs to one rank. Decides alike on all ranks.
void check_moment_blocks(std::span<const DeclaredUnit> units, int ranks,
                         const OptimizerOptions& update);

}  // namespace tessera::engine
