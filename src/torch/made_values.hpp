#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tessera/torch/shard.hpp"
#include "torch/module_units.hpp"

namespace tessera::torch {

/// Makes the initial values of parameters on meta, a unit at a time, and keeps those of the newest
/// unit. The values depend only on the seed and on the place of a parameter's module in the whole
/// module: not on ranks, nor on the division into units.
class MadeValues {
 public:
  /// `module`, `units` and `options` outlive it. Throws ContractError naming parameters on meta
  /// that get values neither from `options` nor from libtorch.
  MadeValues(::torch::nn::Module& module, const std::vector<ModuleUnit>& units,
             const ShardOptions& options);

  /// Returns a whole parameter of unit number `unit`, in its own dtype on the CPU. Throws
  /// ContractError if it was left without values.
  [[nodiscard]] at::Tensor of(std::size_t unit, const std::string& name);

 private:
  // A module with parameters of its own; submodules come first.
  struct Owner {
    std::shared_ptr<::torch::nn::Module> module;
    std::string name;
    std::vector<at::Tensor> parameters;
    std::uint64_t place;  // among all modules
    bool in_attention;    // whether it is the projection of a MultiheadAttention
    bool in_transformer;  // whether it is within a Transformer, which draws its matrices anew
  };
  struct Memory;

  void visit(const std::shared_ptr<::torch::nn::Module>& module, const std::string& name,
             Owner owner);
  void require_values() const;
  void make(std::size_t unit);
  void run(const Owner& owner) const;

  const std::vector<ModuleUnit>& units_;
  const ShardOptions& options_;
  std::vector<Owner> owners_;
  std::unordered_set<const void*> visited_;             // modules
  std::size_t made_ = 0;                                // the number of the unit, from 1
  std::unordered_map<std::string, at::Tensor> values_;  // of that unit
};

}  // namespace tessera::torch
