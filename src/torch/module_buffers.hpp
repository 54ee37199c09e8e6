#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/torch/shard.hpp"
#include "tessera/world/world.hpp"

namespace tessera::torch {

/// A buffer of a module.
struct ModuleBuffer {
  std::vector<std::string> names;  ///< in the whole module; several if it is shared
  at::Tensor tensor;               ///< the module's own handle
};

/// The buffers of a module, each once, in the module's order. They have any dtype and strides.
class ModuleBuffers {
 public:
  /// *Collective.* Makes those on meta (make_buffers), and gives all ranks rank 0's values unless
  /// `how` is local. Throws ContractError for a sparse or quantized buffer, and if ranks have
  /// different ones.
  ModuleBuffers(::torch::nn::Module& module, World& world, Buffers how);

  /// *Collective.* Called before the first forward pass of a micro-batch.
  void before_forward();
  /// *Collective.* Gives all ranks rank 0's values.
  void broadcast();
  /// Returns the buffers in the form of checkpoints. Pointers in it are valid until the next call.
  /// Throws ContractError for element types that safetensors lacks.
  [[nodiscard]] CheckpointExtras extras(std::map<std::string, std::string> values);
  /// Called after a load has filled the buffers of the newest `extras`: takes their values.
  void loaded();
  /// Returns the buffers.
  [[nodiscard]] const std::vector<ModuleBuffer>& all() const noexcept { return buffers_; }

 private:
  World& world_;
  Buffers how_;
  std::vector<ModuleBuffer> buffers_;
  std::vector<at::Tensor> contiguous_;  // of the newest extras, in the same order
};

}  // namespace tessera::torch
