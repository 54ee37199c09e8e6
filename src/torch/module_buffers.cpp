#include "torch/module_buffers.hpp"

#include <ATen/core/Tensor.h>

#include <utility>

#include "torch/initial_values.hpp"

namespace tessera::torch {

ModuleBuffers::ModuleBuffers(::torch::nn::Module& module, World& world, Buffers how)
    : world_{world}, how_{how} {
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value().defined()) { buffers_.emplace_back(buffer.key(), buffer.value()); }
  }
  before_forward();
}

void ModuleBuffers::before_forward() {
  if (how_ == Buffers::local) { return; }
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : buffers_) { tensors.push_back(tensor); }
  if (!tensors.empty()) { broadcast_from_rank0(world_, tensors); }
}

}  // namespace tessera::torch
