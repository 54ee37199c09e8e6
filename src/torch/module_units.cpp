#include "torch/module_units.hpp"

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::torch {

namespace {

bool matches(std::string_view pattern, std::string_view name) {
  while (true) {
    const std::size_t in_pattern = pattern.find('.');
    const std::size_t in_name = name.find('.');
    const std::string_view part = pattern.substr(0, in_pattern);
    if (part != "*" && part != name.substr(0, in_name)) { return false; }
    if ((in_pattern == pattern.npos) != (in_name == name.npos)) { return false; }
    if (in_name == name.npos) { return true; }
    pattern.remove_prefix(in_pattern + 1);
    name.remove_prefix(in_name + 1);
  }
}

bool is_list(const ::torch::nn::Module& module) {
  return dynamic_cast<const ::torch::nn::ModuleListImpl*>(&module) != nullptr ||
         dynamic_cast<const ::torch::nn::ModuleDictImpl*>(&module) != nullptr ||
         dynamic_cast<const ::torch::nn::SequentialImpl*>(&module) != nullptr;
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// Collects units and parameters in the module's order. Index 0 is the root unit.
class Division {
 public:
  explicit Division(const UnitPredicate& is_unit) : is_unit_{is_unit} {
    units_.push_back({.name = kRootUnit});
  }

  void visit(const ::torch::nn::Module& module, const std::string& name, std::size_t unit,
             bool in_list) {
    if (!modules_.insert(&module).second) {  // registered twice: it stays where it was found first
      for (const auto& item : module.named_parameters()) {
        found_[by_tensor_.at(item.value().unsafeGetTensorImpl())].names.push_back(
            join(name, item.key()));
      }
      return;
    }
    if (!name.empty() && begins_unit(module, name, unit, in_list)) {
      units_[unit].contains_units = true;
      units_.push_back({.name = name, .parent = unit});
      unit = units_.size() - 1;
    }
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      add(item.value(), join(name, item.key()), unit);
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), join(name, child.key()), unit, is_list(module));
    }
  }

  std::vector<ModuleUnit> finish() {
    for (Found& found : found_) {
      ModuleUnit& unit = units_[found.unit];
      const std::string& name = found.names.front();
      const std::size_t prefix = found.unit == 0 ? 0 : unit.name.size() + 1;
      unit.parameters.push_back(
          {.name = name.substr(prefix), .names = found.names, .tensor = found.tensor});
    }
    return without_empty();
  }

 private:
  struct Found {
    at::Tensor tensor;
    std::size_t unit;
    std::vector<std::string> names;
  };

  bool begins_unit(const ::torch::nn::Module& module, const std::string& name, std::size_t unit,
                   bool in_list) const {
    if (is_unit_) { return is_unit_(name, module); }
    return in_list && unit == 0 && !module.parameters().empty();
  }

  void add(const at::Tensor& tensor, const std::string& name, std::size_t unit) {
    const auto known = by_tensor_.find(tensor.unsafeGetTensorImpl());
    if (known != by_tensor_.end()) {  // shared by several units: it belongs to none of them
      Found& found = found_[known->second];
      found.names.push_back(name);
      if (found.unit != unit) { found.unit = 0; }
      return;
    }
    const at::ScalarType dtype = tensor.scalar_type();
    if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
      throw ContractError{"parameter \"" + name + "\" has elements of type " +
                          std::string{c10::toString(dtype)} +
                          "; a sharded module needs parameters in Float, BFloat16 or Half: convert "
                          "the module first (module->to(torch::kFloat32))"};
    }
    if (!tensor.is_leaf()) {
      throw ContractError{
          "parameter \"" + name +
          "\" is computed from other tensors (it is not a leaf); a sharded module needs parameters "
          "of its own: register the tensors that it is computed from instead"};
    }
    if (tensor.layout() != at::kStrided) {
      throw ContractError{"parameter \"" + name +
                          "\" is sparse; a sharded module needs dense ones"};
    }
    if (tensor.has_storage() && !tensor.is_meta()) {
      const void* storage = tensor.storage().unsafeGetStorageImpl();
      const auto [place, first] = by_storage_.emplace(storage, name);
      if (!first) {
        throw ContractError{"parameters \"" + place->second + "\" and \"" + name +
                            "\" are views of one tensor; a sharded module needs parameters with "
                            "their own memory (clone them), or one tensor under two names"};
      }
    }
    by_tensor_.emplace(tensor.unsafeGetTensorImpl(), found_.size());
    found_.push_back({.tensor = tensor, .unit = unit, .names = {name}});
  }

  std::vector<ModuleUnit> without_empty() {
    std::vector<std::size_t> place(units_.size(), 0);
    std::vector<ModuleUnit> kept;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (units_[i].parameters.empty()) { continue; }
      place[i] = kept.size();
      ModuleUnit& unit = kept.emplace_back(std::move(units_[i]));
      // The parent may be empty: then it is the parent's parent.
      while (unit.parent && kept_of(*unit.parent) == nullptr) {
        unit.parent = units_[*unit.parent].parent;
      }
      if (unit.parent) { unit.parent = place[*unit.parent]; }
    }
    return kept;
  }
  const ModuleUnit* kept_of(std::size_t unit) const {
    return has_parameters(unit) ? &units_[unit] : nullptr;
  }
  bool has_parameters(std::size_t unit) const {
    return std::any_of(found_.begin(), found_.end(),
                       [&](const Found& found) { return found.unit == unit; });
  }

  const UnitPredicate& is_unit_;
  std::vector<ModuleUnit> units_;
  std::vector<Found> found_;
  std::unordered_set<const void*> modules_;
  std::unordered_map<const void*, std::size_t> by_tensor_;
  std::unordered_map<const void*, std::string> by_storage_;
};

}  // namespace

UnitPredicate units_named(std::vector<std::string> patterns) {
  return [patterns = std::move(patterns)](const std::string& name, const ::torch::nn::Module&) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(pattern, name); });
  };
}

std::string full_name(const std::string& unit, const std::string& parameter) {
  return unit == kRootUnit ? parameter : unit + "." + parameter;
}

std::vector<ModuleUnit> units_of(const ::torch::nn::Module& module, const UnitPredicate& is_unit) {
  Division division{is_unit};
  division.visit(module, "", 0, false);
  std::vector<ModuleUnit> units = division.finish();
  if (units.empty()) {
    throw ContractError{"the module has no parameters to shard; give one that has"};
  }
  if (is_unit && units.size() == 1 && units[0].name == kRootUnit) {
    throw ContractError{
        "ShardOptions::units matches no module that has parameters, so all of them would be "
        "gathered at once; the module's children are named as in module->named_modules()"};
  }
  return units;
}

}  // namespace tessera::torch
