#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tessera/torch.hpp"
#include "tessera/world/world.hpp"

// Written like a program that does not know tessera.
namespace plain_nets {

/// A module with everything that a state dict can hold: a shared and a frozen parameter, units, and
/// buffers of every kind.
struct TrackImpl : ::torch::nn::Module {
  at::Tensor seen, mean, mask, half, columns, none, scale;

  explicit TrackImpl(const at::Tensor& shared) {
    seen = register_buffer("seen", ::torch::tensor(std::int64_t{1} << 60, ::torch::kLong) + 1);
    mean = register_buffer("mean", ::torch::tensor({0.0, 0.0, 0.0, 0.0, 0.0}, ::torch::kDouble));
    mask = register_buffer("mask", ::torch::tensor({true, false, true, true, false}));
    half = register_buffer("half", ::torch::tensor({0.5, -3.0}, ::torch::kBFloat16));
    columns =
        register_buffer("columns", ::torch::tensor({{1, 2, 3}, {4, 5, 6}}, ::torch::kInt).t());
    none = register_buffer("none", ::torch::empty({0, 3}, ::torch::kFloat16));
    scale = register_buffer("scale", shared);
  }
  at::Tensor forward(const at::Tensor& x) {
    const ::torch::NoGradGuard no_grad;
    if (!is_training()) { return x - mean.to(::torch::kFloat) * scale; }
    seen += 1;
    mean.mul_(0.5).add_(x.to(::torch::kDouble).mean(0), 0.5);
    columns += 1;
    return x;
  }
};
TORCH_MODULE(Track);

struct StateBlockImpl : ::torch::nn::Module {
  ::torch::nn::LayerNorm norm{nullptr};
  ::torch::nn::Linear a{nullptr}, b{nullptr};

  explicit StateBlockImpl(std::int64_t width) {
    norm = register_module("norm", ::torch::nn::LayerNorm(::torch::nn::LayerNormOptions({width})));
    a = register_module("a", ::torch::nn::Linear(width, 2 * width));
    b = register_module("b", ::torch::nn::Linear(2 * width, width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + b(::torch::gelu(a(norm(x)))); }
};
TORCH_MODULE(StateBlock);

struct StateNetImpl : ::torch::nn::Module {
  Track first{nullptr}, second{nullptr};
  ::torch::nn::Linear in{nullptr};
  ::torch::nn::ModuleList blocks;
  at::Tensor tied;

  explicit StateNetImpl(std::int64_t width = 12) {
    const at::Tensor shared = ::torch::tensor({2.0F, 2.0F, 2.0F, 2.0F, 2.0F});
    first = register_module("first", Track(shared));
    second = register_module("second", Track(shared));
    in = register_module("in", ::torch::nn::Linear(5, width));
    in->bias.requires_grad_(false);
    blocks = register_module("blocks", ::torch::nn::ModuleList());
    for (int i = 0; i < 3; ++i) { blocks->push_back(StateBlock(width)); }
    tied = register_parameter("tied", in->weight);
  }
  at::Tensor forward(at::Tensor x) {
    x = in(second(first(x)));
    for (const auto& block : *blocks) { x = block->as<StateBlock>()->forward(x); }
    return ::torch::matmul(x, tied);
  }
};
TORCH_MODULE(StateNet);

}  // namespace plain_nets

namespace tessera::test {

using plain_nets::StateNet;
using plain_nets::StateNetImpl;

/// Ranks that are threads share libtorch's generator.
inline std::mutex& libtorch_mutex() {
  static std::mutex mutex;
  return mutex;
}

inline StateNet built_net(std::uint64_t seed) {
  const std::lock_guard lock{libtorch_mutex()};
  ::torch::manual_seed(seed);
  return StateNet{};
}

/// A rank's rows of a step's data, inputs or targets.
inline at::Tensor rows(std::uint64_t seed, int rank = 0, int ranks = 1) {
  const std::lock_guard lock{libtorch_mutex()};
  ::torch::manual_seed(seed);
  const std::int64_t count = 8 / ranks;
  return ::torch::randn({8, 5}).narrow(0, rank * count, count);
}

using Tensors = std::map<std::string, at::Tensor>;

/// The tensors that a libtorch program sees in an unsharded module.
inline Tensors tensors_of(const ::torch::nn::Module& module) {
  Tensors all;
  for (const auto& item : module.named_parameters()) { all.emplace(item.key(), item.value()); }
  for (const auto& item : module.named_buffers()) { all.emplace(item.key(), item.value()); }
  return all;
}

/// Dtype, shape and bytes.
inline std::string bits(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().cpu().contiguous();
  std::string text = std::string{c10::toString(whole.scalar_type())} + " ";
  for (const std::int64_t extent : whole.sizes()) { text += std::to_string(extent) + " "; }
  return text.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
}

inline std::map<std::string, std::string> bits(const Tensors& tensors) {
  std::map<std::string, std::string> all;
  for (const auto& [name, tensor] : tensors) { all.emplace(name, bits(tensor)); }
  return all;
}

/// The names whose bits differ, or that only one of the two has.
inline std::string difference(const Tensors& a, const Tensors& b) {
  std::string names;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || bits(other->second) != bits(tensor)) { names += name + " "; }
  }
  for (const auto& [name, tensor] : b) {
    if (!a.contains(name)) { names += name + " "; }
  }
  return names;
}

}  // namespace tessera::test
