#include "torch/made_values.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformer.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "tessera/base/error.hpp"
#include "torch/layer_defaults.hpp"
#include "torch/meta_tensors.hpp"
#include "torch/rank_random.hpp"

namespace tessera::torch {

namespace {

bool has_nan(const at::Tensor& tensor) {
  // A sum takes no memory; infinities of both signs sum to NaN, which is checked element by
  // element.
  if (tensor.numel() == 0 || !at::isnan(tensor.sum()).item<bool>()) { return false; }
  return at::isnan(tensor).any().item<bool>();
}

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  }
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more"
                              : text;
}

}  // namespace

// Memory on the CPU for parameters on meta, while this object lives.
struct MadeValues::Memory {
  Memory() = default;
  ~Memory() {
    for (auto& [tensor, meta] : given) { set_memory(tensor, meta); }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Fills it with NaN, which stands for a missing value.
  void give(const at::Tensor& tensor) {
    if (!tensor.is_meta()) { return; }
    given.emplace_back(tensor, meta_like(tensor));
    set_memory(tensor, at::full(tensor.sizes(), std::numeric_limits<double>::quiet_NaN(),
                                at::TensorOptions{}.dtype(tensor.scalar_type()).device(at::kCPU)));
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> given;  // and the previous tensors
};

MadeValues::MadeValues(::torch::nn::Module& module, const std::vector<ModuleUnit>& units,
                       const ShardOptions& options)
    : units_{units}, options_{options} {
  bool any = false;
  for (const ModuleUnit& unit : units) {
    for (const ModuleParameter& parameter : unit.parameters) {
      any = any || parameter.tensor.is_meta();
    }
  }
  if (!any) { return; }
  // The module itself may be on the stack: references kept here end before it.
  visit({std::shared_ptr<void>{}, &module}, "", {});
  require_values();
}

void MadeValues::visit(const std::shared_ptr<::torch::nn::Module>& module, const std::string& name,
                       Owner owner) {
  const std::uint64_t place = visited_.size();
  if (!visited_.insert(module.get()).second) { return; }
  owner.in_transformer =
      owner.in_transformer || dynamic_cast<::torch::nn::TransformerImpl*>(module.get()) != nullptr;
  Owner of_child = owner;
  of_child.in_attention =
      dynamic_cast<::torch::nn::MultiheadAttentionImpl*>(module.get()) != nullptr;
  for (const auto& child : module->named_children()) {
    visit(child.value(), joined(name, child.key()), of_child);
  }
  owner.module = module;
  owner.name = name;
  owner.place = place;
  for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
    if (parameter.defined()) { owner.parameters.push_back(parameter); }
  }
  if (!owner.parameters.empty()) { owners_.push_back(std::move(owner)); }
}

void MadeValues::require_values() const {
  if (options_.initial) { return; }
  std::vector<std::string> without;
  for (const Owner& owner : owners_) {
    if (has_default_values(*owner.module)) { continue; }
    for (const auto& parameter : owner.module->named_parameters(/*recurse=*/false)) {
      if (parameter.value().is_meta()) { without.push_back(joined(owner.name, parameter.key())); }
    }
  }
  if (without.empty()) { return; }
  throw ContractError{
      "the module was built on meta, and its parameters have no source of initial values: " +
      quoted(without) +
      ", as they do not belong to a layer of libtorch; set ShardOptions::initial, or use "
      "tessera::torch::loaded_later() if a load follows"};
}

at::Tensor MadeValues::of(std::size_t unit, const std::string& name) {
  if (made_ != unit + 1) { make(unit); }
  return values_.at(name);
}

void MadeValues::run(const Owner& owner) const {
  set_default_values(*owner.module);
  auto* const linear = dynamic_cast<::torch::nn::LinearImpl*>(owner.module.get());
  if (owner.in_attention && linear != nullptr && linear->bias.defined()) { linear->bias.zero_(); }
  if (owner.in_transformer) {
    for (const at::Tensor& parameter : owner.parameters) {
      if (parameter.dim() > 1) { ::torch::nn::init::xavier_uniform_(parameter); }
    }
  }
  if (options_.initial) { options_.initial(owner.name, *owner.module); }
}

void MadeValues::make(std::size_t unit) {
  made_ = 0;
  values_.clear();
  std::unordered_set<const void*> wanted;
  for (const ModuleParameter& parameter : units_[unit].parameters) {
    if (parameter.tensor.is_meta()) { wanted.insert(parameter.tensor.unsafeGetTensorImpl()); }
  }
  // Ranks that are threads make one unit at a time, and call the program's function in turn.
  static std::mutex turn;
  const std::lock_guard lock{turn};
  const at::NoGradGuard no_grad;
  const auto random = std::make_shared<RankRandom>(options_.seed);
  const DrawsFrom these{random};
  Memory memory;
  const auto owns = [&](const Owner& owner) {
    return std::any_of(owner.parameters.begin(), owner.parameters.end(),
                       [&](const auto& own) { return wanted.contains(own.unsafeGetTensorImpl()); });
  };
  for (const Owner& owner : owners_) {
    if (!owns(owner)) { continue; }
    // A shared parameter keeps the values of its first owner, one with values its own.
    std::vector<std::pair<at::Tensor, at::Tensor>> kept;
    for (const at::Tensor& own : owner.parameters) {
      if (!own.is_meta()) { kept.emplace_back(own.detach(), own.detach().clone()); }
      memory.give(own);
    }
    random->seed(mixed_seed(options_.seed, owner.place));
    run(owner);
    for (const auto& [own, before] : kept) { own.copy_(before); }
  }
  for (const ModuleParameter& parameter : units_[unit].parameters) {
    if (!wanted.contains(parameter.tensor.unsafeGetTensorImpl())) { continue; }
    if (has_nan(parameter.tensor)) {
      throw ContractError{"ShardOptions::initial leaves elements of \"" + parameter.names.front() +
                          "\" without values, or makes them NaN"};
    }
    values_.emplace(parameter.names.front(), parameter.tensor.detach());
  }
  made_ = unit + 1;
}

}  // namespace tessera::torch
