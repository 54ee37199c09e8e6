#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/torch/shard.hpp"
#include "tessera/world/world.hpp"

namespace tessera::torch {

/// The buffers of a module, by their names in it.
class ModuleBuffers {
 public:
  /// *Collective.* Gives all ranks rank 0's values, as `how` says.
  ModuleBuffers(::torch::nn::Module& module, World& world, Buffers how);

  /// *Collective.* Before a forward pass of training.
  void before_forward();
  /// Returns the buffers, as checkpoints hold them.
  [[nodiscard]] CheckpointExtras extras(std::map<std::string, std::string> values) const;
  /// After a load that has filled the buffers of `extras`: takes what checkpoints hold as values.
  void take(std::map<std::string, std::string>& values);
  /// Returns the buffers by name.
  [[nodiscard]] const std::vector<std::pair<std::string, at::Tensor>>& all() const noexcept {
    return buffers_;
  }

 private:
  World& world_;
  Buffers how_;
  std::vector<std::pair<std::string, at::Tensor>> buffers_;
};

}  // namespace tessera::torch
