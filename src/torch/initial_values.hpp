#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "tessera/engine/init.hpp"
#include "tessera/torch/shard.hpp"
#include "tessera/world/world.hpp"
#include "torch/module_units.hpp"

namespace tessera::torch {

/// Returns the World's device as libtorch's; the CPU for a simulated rank.
[[nodiscard]] at::Device device_of(World& world);

/// *Collective.* Throws ContractError naming the first line that differs unless `text`, a list of
/// what the ranks shard, is the same on all of them.
void require_same_lines(World& world, const std::string& text);

/// *Collective.* Throws ContractError naming the first difference unless all ranks have the same
/// units.
void require_same_units(World& world, const std::vector<ModuleUnit>& units);

/// *Collective.* Copies rank 0's values of these tensors to all ranks, in place. Any dtype and
/// strides. Blocks.
void broadcast_from_rank0(World& world, const std::vector<at::Tensor>& tensors);

/// Returns an initializer that reads the parameters of `module`, with values or made a unit at a
/// time, as `options` says. `module`, `units` and `options` outlive it. Throws
/// ContractError for parameters on meta without a source of values.
[[nodiscard]] Initializer initial_values(::torch::nn::Module& module,
                                         const std::vector<ModuleUnit>& units,
                                         const ShardOptions& options);

/// Gives buffers of `module` on meta memory on the World's device, and the initial values of
/// libtorch's layers. Throws ContractError naming those of other modules.
void make_buffers(::torch::nn::Module& module, World& world);

}  // namespace tessera::torch
