#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "tessera/engine/init.hpp"
#include "tessera/torch/shard.hpp"
#include "tessera/world/world.hpp"
#include "torch/module_units.hpp"

namespace tessera::torch {

/// *Collective.* Throws ContractError that names the first difference unless all ranks have the
/// same units.
void require_same_units(World& world, const std::vector<ModuleUnit>& units);

/// *Collective.* Copies rank 0's values of these tensors to all ranks, in place. They have any
/// dtype, and are on the World's device. Blocks.
void broadcast_from_rank0(World& world, const std::vector<at::Tensor>& tensors);

/// Returns an initialiser that reads the parameters of `module`, which have values or are made a
/// unit at a time, as `options` says. `module` and `units` outlive it.
[[nodiscard]] Initializer initial_values(::torch::nn::Module& module,
                                         const std::vector<ModuleUnit>& units,
                                         const ShardOptions& options);

}  // namespace tessera::torch
