#include "torch/module_units.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tessera/base/error.hpp"
#include "torch/default_units.hpp"

namespace tessera::torch {

namespace {

/// Whether `pattern` matches all of `part`: `*` matches any characters, `?` one.
bool matches_part(std::string_view pattern, std::string_view part) {
  if (pattern.empty()) { return part.empty(); }
  if (pattern.front() == '*') {
    return matches_part(pattern.substr(1), part) ||
           (!part.empty() && matches_part(pattern, part.substr(1)));
  }
  return !part.empty() && (pattern.front() == '?' || pattern.front() == part.front()) &&
         matches_part(pattern.substr(1), part.substr(1));
}

bool matches(std::string_view pattern, std::string_view name) {
  while (true) {
    const std::size_t in_pattern = pattern.find('.');
    const std::size_t in_name = name.find('.');
    if (!matches_part(pattern.substr(0, in_pattern), name.substr(0, in_name))) { return false; }
    if ((in_pattern == pattern.npos) != (in_name == name.npos)) { return false; }
    if (in_name == name.npos) { return true; }
    pattern.remove_prefix(in_pattern + 1);
    name.remove_prefix(in_name + 1);
  }
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// Names of parameters are full in the root unit and in a unit of several modules. libtorch allows
// no dot in a module's own name, so that only such a unit has two.
bool keeps_full_names(const std::string& unit) {
  return unit == kRootUnit || unit.find("..") != unit.npos;
}

/// "conv1, conv2, fc": the modules that have parameters, at most 20 of them.
std::string names_of_modules(const ::torch::nn::Module& module) {
  constexpr std::size_t most = 20;
  std::string names;
  std::size_t count = 0;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (item.value()->parameters().empty()) { continue; }
    if (++count <= most) { names += (count == 1 ? "" : ", ") + item.key(); }
  }
  if (count > most) { names += ", and " + std::to_string(count - most) + " more"; }
  return names;
}

// Collects units and parameters in the module's order. Index 0 is the root unit.
class Division {
 public:
  Division(const ::torch::nn::Module& module, const UnitPredicate& is_unit) : is_unit_{is_unit} {
    units_.push_back({.name = kRootUnit});
    if (!is_unit) {
      for (const DefaultUnit& unit : default_units(module)) {
        for (const ::torch::nn::Module* const member : unit.modules) {
          default_of_.emplace(member, unit.name);
        }
      }
    }
    visit(module, "", 0);
  }

  void visit(const ::torch::nn::Module& module, const std::string& name, std::size_t unit) {
    if (!modules_.insert(&module).second) {  // registered twice: it stays where it was found first
      for (const auto& item : module.named_parameters()) {
        found_[by_tensor_.at(item.value().unsafeGetTensorImpl())].names.push_back(
            join(name, item.key()));
      }
      return;
    }
    if (!name.empty()) { unit = unit_of(module, name, unit); }
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      add(item.value(), join(name, item.key()), unit);
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), join(name, child.key()), unit);
    }
  }

  std::vector<ModuleUnit> finish() {
    for (Found& found : found_) {
      ModuleUnit& unit = units_[found.unit];
      const std::string& name = found.names.front();
      const std::size_t prefix = keeps_full_names(unit.name) ? 0 : unit.name.size() + 1;
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

  /// The unit of a module called `name` within `outer`: a new one, `outer`, or one that the module
  /// before it has begun.
  std::size_t unit_of(const ::torch::nn::Module& module, const std::string& name,
                      std::size_t outer) {
    std::string own = name;
    if (is_unit_) {
      if (!is_unit_(name, module)) { return outer; }
    } else {
      const auto by_default = default_of_.find(&module);
      if (by_default == default_of_.end()) { return outer; }
      own = by_default->second;
      if (units_.back().name == own) { return units_.size() - 1; }
    }
    units_[outer].contains_units = true;
    units_.push_back({.name = std::move(own), .parent = outer});
    return units_.size() - 1;
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
  std::unordered_map<const ::torch::nn::Module*, std::string> default_of_;  // without is_unit_
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
  return keeps_full_names(unit) ? parameter : unit + "." + parameter;
}

std::vector<ModuleUnit> units_of(const ::torch::nn::Module& module, const UnitPredicate& is_unit) {
  std::vector<ModuleUnit> units = Division{module, is_unit}.finish();
  if (units.empty()) {
    throw ContractError{"the module has no parameters to shard; give one that has"};
  }
  if (is_unit && units.size() == 1 && units[0].name == kRootUnit) {
    throw ContractError{
        "ShardOptions::units matches no module that has parameters, so all of them would be "
        "gathered at once; match some of: " +
        names_of_modules(module)};
  }
  return units;
}

}  // namespace tessera::torch
