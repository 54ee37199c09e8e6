#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "tessera/engine/init.hpp"
#include "tessera/torch/shard.hpp"
#include "tessera/world/world.hpp"
#include "torch/module_units.hpp"

namespace tessera::torch {

/// Returns the World's device, as libtorch names it.
[[nodiscard]] at::Device device_of(World& world);

/// *Collective.* Throws ContractError that names the first line that differs unless `text` is the
/// same on all ranks: what they shard, one thing a line.
void require_same_lines(World& world, const std::string& text);

/// *Collective.* Throws ContractError that names the first difference unless all ranks have the
/// same units.
void require_same_units(World& world, const std::vector<ModuleUnit>& units);

/// *Collective.* Copies rank 0's values of these tensors to all ranks, in place. They have any
/// dtype and strides. Blocks.
void broadcast_from_rank0(World& world, const std::vector<at::Tensor>& tensors);

/// Returns an initialiser that reads the parameters of `module`, which have values or are made a
/// unit at a time, as `options` says. `module`, `units` and `options` outlive it. Throws
/// ContractError for parameters on meta that nothing gives values.
[[nodiscard]] Initializer initial_values(::torch::nn::Module& module,
                                         const std::vector<ModuleUnit>& units,
                                         const ShardOptions& options);

/// Gives those buffers of `module` that are on meta memory on the World's device, and the values
/// that libtorch's layers begin with. Throws ContractError that names those of other modules.
void make_buffers(::torch::nn::Module& module, World& world);

}  // namespace tessera::torch
