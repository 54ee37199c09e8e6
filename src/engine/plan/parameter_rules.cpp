#include "engine/plan/parameter_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.hpp"

namespace tessera::engine {
namespace {

/// Calls `visit(unit, parameter)` once for every trained parameter.
template <class Visit>
void for_trained(const UnitPlans& units, const Visit& visit) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t p = 0; p < units[u].infos.size(); ++p) {
      if (!units[u].alias_of[p] && units[u].infos[p].trainable) { visit(u, p); }
    }
  }
}

}  // namespace

ParameterRules resolve_rules(const UnitPlans& units, const Optimizer& optimizer,
                             const OptimizerOptions& options) {
  const float decay = std::visit([](const auto& rule) { return rule.weight_decay; }, optimizer);
  ParameterRules rules;
  for (const UnitPlan& unit : units) { rules.emplace_back(unit.infos.size()); }
  std::vector<int> members(options.groups.size(), 0);
  for_trained(units, [&](std::size_t u, std::size_t p) {
    const ParameterInfo& info = units[u].infos[p];
    ParameterRule& rule = rules[u][p];
    rule.weight_decay = options.decays(info.full_name(), info.shape) ? decay : 0.0F;
    const auto group = std::ranges::find_if(
        options.groups, [&](const ParameterGroup& candidate) { return candidate.contains(info); });
    if (group == options.groups.end()) { return; }
    ++members[static_cast<std::size_t>(group - options.groups.begin())];
    rule.lr_scale = group->lr_scale;
    rule.weight_decay = group->weight_decay.value_or(rule.weight_decay);
  });
  for (std::size_t g = 0; g < members.size(); ++g) {
    if (members[g] > 0) { continue; }
    throw ConfigError{
        fmt::format("the parameter group '{}' contains no trainable parameter that is not in an "
                    "earlier group: correct its predicate, or remove the group",
                    options.groups[g].name)};
  }
  return rules;
}

std::string describe(const UnitPlans& units, const ParameterRules& rules) {
  std::string text;
  for_trained(units, [&](std::size_t u, std::size_t p) {
    text += fmt::format("{} rate times {} weight_decay {}\n", units[u].infos[p].full_name(),
                        rules[u][p].lr_scale, rules[u][p].weight_decay);
  });
  return text;
}

}  // namespace tessera::engine
