#include "torch/default_units.hpp"

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

namespace tessera::torch {

namespace {

using ::torch::nn::Module;

bool is_list(const Module& module) {
  return dynamic_cast<const ::torch::nn::ModuleListImpl*>(&module) != nullptr ||
         dynamic_cast<const ::torch::nn::ModuleDictImpl*>(&module) != nullptr ||
         dynamic_cast<const ::torch::nn::SequentialImpl*>(&module) != nullptr;
}

/// Elements of all parameters of the module, each once.
std::int64_t elems_of(const Module& module) {
  std::unordered_set<const void*> seen;
  std::int64_t elems = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) { elems += parameter.numel(); }
  }
  return elems;
}

bool has_parameters(const Module& module) {
  return !module.parameters().empty();
}

bool contains_list(const Module& module) {
  const auto children = module.children();
  return std::any_of(children.begin(), children.end(), [](const auto& child) {
    return has_parameters(*child) && (is_list(*child) || contains_list(*child));
  });
}

/// Modules that form a unit together, while they are collected.
struct Group {
  const Module* parent;
  std::vector<std::string> names;
  std::vector<const Module*> modules;
  std::int64_t largest = 0;  // elements of its largest module
  std::int64_t tiny = 0;     // elements of the others

  [[nodiscard]] bool takes(const Group& other) const noexcept {
    return parent == other.parent && other.largest <= kTinyElems &&
           (tiny + other.largest + other.tiny) * kLeastRatio <= largest;
  }
  void append(const Group& next) {
    names.insert(names.end(), next.names.begin(), next.names.end());
    modules.insert(modules.end(), next.modules.begin(), next.modules.end());
    tiny += next.tiny + std::min(largest, next.largest);
    largest = std::max(largest, next.largest);
  }
};

class Collector {
 public:
  explicit Collector(const Module& whole) : half_{elems_of(whole) / 2} { open(whole, ""); }

  std::vector<Group>& groups() noexcept { return groups_; }

 private:
  void open(const Module& parent, const std::string& prefix) {
    for (const auto& item : parent.named_children()) {
      const Module& child = *item.value();
      if (!has_parameters(child) || !seen_.insert(&child).second) { continue; }
      const std::string name = prefix + item.key();
      if (opens(child, is_list(parent))) {
        open(child, name + ".");
      } else {
        groups_.push_back(
            {.parent = &parent, .names = {name}, .modules = {&child}, .largest = elems_of(child)});
      }
    }
  }

  bool opens(const Module& child, bool in_list) const {
    const auto children = child.children();
    if (std::none_of(children.begin(), children.end(),
                     [](const auto& below) { return has_parameters(*below); })) {
      return false;
    }
    return elems_of(child) > half_ || (!in_list && (is_list(child) || contains_list(child)));
  }

  std::int64_t half_;
  std::unordered_set<const Module*> seen_;
  std::vector<Group> groups_;
};

std::vector<Group> joined_to_the_one_before(const std::vector<Group>& groups) {
  std::vector<Group> joined;
  for (const Group& group : groups) {
    if (!joined.empty() && joined.back().takes(group)) {
      joined.back().append(group);
    } else {
      joined.push_back(group);
    }
  }
  return joined;
}

std::vector<Group> joined_to_the_one_behind(const std::vector<Group>& groups) {
  std::vector<Group> joined;  // the last group first
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    Group first = *group;
    if (!joined.empty() && joined.back().takes(first)) {
      first.append(joined.back());
      joined.back() = std::move(first);
    } else {
      joined.push_back(std::move(first));
    }
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

}  // namespace

std::vector<DefaultUnit> default_units(const Module& module) {
  std::vector<DefaultUnit> units;
  Collector collector{module};
  for (Group& group : joined_to_the_one_behind(joined_to_the_one_before(collector.groups()))) {
    std::string name = group.names.front();
    if (group.names.size() > 1) { name += ".." + group.names.back(); }
    units.push_back({.name = std::move(name), .modules = std::move(group.modules)});
  }
  return units;
}

}  // namespace tessera::torch
