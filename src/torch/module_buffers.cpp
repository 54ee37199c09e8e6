#include "torch/module_buffers.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tessera/base/error.hpp"
#include "torch/initial_values.hpp"
#include "torch/safetensors_dtype.hpp"

namespace tessera::torch {

namespace {

void require_dense(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided && !tensor.is_quantized()) { return; }
  throw ContractError{"buffer \"" + name + "\" is " +
                      (tensor.is_quantized() ? "quantized" : "sparse") +
                      "; make the buffers of a sharded module dense"};
}

// Elements that share memory, like those of `expand`, cannot be written.
void unfold(const at::Tensor& tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) {
      return tensor.set_data(tensor.contiguous());
    }
  }
}

std::string described(const std::vector<ModuleBuffer>& buffers) {
  std::string text;
  for (const ModuleBuffer& buffer : buffers) {
    text += "buffer " + buffer.names.front() + " " +
            Shape{buffer.tensor.sizes().vec()}.to_string() + " " +
            c10::toString(buffer.tensor.scalar_type()) + "\n";
  }
  return text;
}

}  // namespace

ModuleBuffers::ModuleBuffers(::torch::nn::Module& module, World& world, Buffers how)
    : world_{world}, how_{how} {
  const at::NoGradGuard no_grad;
  make_buffers(module, world);
  std::unordered_map<const void*, std::size_t> known;
  for (const auto& buffer : module.named_buffers()) {
    if (!buffer.value().defined()) { continue; }
    const auto [place, is_new] =
        known.emplace(buffer.value().unsafeGetTensorImpl(), buffers_.size());
    if (is_new) {
      require_dense(buffer.key(), buffer.value());
      unfold(buffer.value());
      buffers_.push_back({.names = {}, .tensor = buffer.value()});
    }
    buffers_[place->second].names.push_back(buffer.key());
  }
  require_same_lines(world, described(buffers_));
  before_forward();
}

void ModuleBuffers::before_forward() {
  if (how_ == Buffers::broadcast) { broadcast(); }
}

void ModuleBuffers::broadcast() {
  std::vector<at::Tensor> tensors;
  for (const ModuleBuffer& buffer : buffers_) { tensors.push_back(buffer.tensor); }
  broadcast_from_rank0(world_, tensors);
}

CheckpointExtras ModuleBuffers::extras(std::map<std::string, std::string> values) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(world_);
  CheckpointExtras extras{.values = std::move(values), .buffers = {}};
  contiguous_.clear();
  for (const ModuleBuffer& buffer : buffers_) {
    const std::string dtype = safetensors_dtype(buffer.tensor.scalar_type());
    if (dtype.empty()) {
      throw ContractError{
          "buffer \"" + buffer.names.front() + "\" has elements of type " +
          c10::toString(buffer.tensor.scalar_type()) +
          ", which safetensors files cannot hold; convert it before saving a checkpoint"};
    }
    const at::Tensor whole = buffer.tensor.detach().to(device).contiguous();
    contiguous_.push_back(whole);
    extras.buffers.push_back({.name = buffer.names.front(),
                              .shape = Shape{whole.sizes().vec()},
                              .values = {whole.data_ptr(), whole.numel(), dtype}});
  }
  return extras;
}

void ModuleBuffers::loaded() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const at::Tensor to = buffers_[i].tensor.detach();
    if (to.data_ptr() != contiguous_[i].data_ptr()) { to.copy_(contiguous_[i]); }
  }
  contiguous_.clear();
}

}  // namespace tessera::torch
