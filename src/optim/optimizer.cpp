#include "tessera/optim/optimizer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/enumerator.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr int kMostStates = 16;

void check(bool ok, std::string_view name, float value, std::string_view rule) {
  if (ok && std::isfinite(value)) { return; }
  throw ContractError(
      fmt::format("optimizer: {} must be a finite number {}, but is {}", name, rule, value));
}

void check_not_negative(std::string_view name, float value) {
  check(value >= 0.0F, name, value, ">= 0");
}

// A moment that keeps everything (1) would never use a gradient, and divide by 1 - 1^t = 0.
void check_fraction(std::string_view name, float value) {
  check(value >= 0.0F && value < 1.0F, name, value, "in [0, 1)");
}

template <class TwoMoments>
void check_adam(const TwoMoments& adam) {
  check_fraction("`beta1`", adam.beta1);
  check_fraction("`beta2`", adam.beta2);
  check(adam.eps > 0.0F, "`eps`", adam.eps, "> 0");
}

void check_values(const AdamW& adamw) {
  check_adam(adamw);
}

void check_values(const Adam& adam) {
  check_adam(adam);
}

void check_values(const Lion& lion) {
  check_fraction("`beta1`", lion.beta1);
  check_fraction("`beta2`", lion.beta2);
}

void check_values(const SGD& sgd) {
  check_fraction("`momentum`", sgd.momentum);
}

void check_values(const CustomOptimizer& custom) {
  expects(!custom.name.empty(), "optimizer: a custom optimizer needs a name");
  if (custom.update == nullptr) {
    throw ContractError(
        fmt::format("optimizer: the update function of '{}' is empty", custom.name));
  }
  if (custom.states < 0 || custom.states > kMostStates) {
    throw ContractError(fmt::format("optimizer: '{}' asks for {} states; 0 to {} are possible",
                                    custom.name, custom.states, kMostStates));
  }
}

struct Describe {
  std::string operator()(const AdamW& adamw) const { return adam("AdamW", adamw); }
  std::string operator()(const Adam& rule) const { return adam("Adam", rule); }
  std::string operator()(const Lion& lion) const {
    return fmt::format("Lion lr {} beta1 {} beta2 {} weight_decay {}", lion.lr, lion.beta1,
                       lion.beta2, lion.weight_decay);
  }
  std::string operator()(const SGD& sgd) const {
    return fmt::format("SGD lr {} momentum {} weight_decay {}", sgd.lr, sgd.momentum,
                       sgd.weight_decay);
  }
  std::string operator()(const CustomOptimizer& custom) const {
    return fmt::format("custom {} states {} lr {} weight_decay {}", custom.name, custom.states,
                       custom.lr, custom.weight_decay);
  }

 private:
  template <class TwoMoments>
  static std::string adam(std::string_view name, const TwoMoments& rule) {
    return fmt::format("{} lr {} beta1 {} beta2 {} eps {} weight_decay {}", name, rule.lr,
                       rule.beta1, rule.beta2, rule.eps, rule.weight_decay);
  }
};

/// A new rule does not compile without its count.
struct StateCount {
  int operator()(const AdamW&) const noexcept { return 2; }
  int operator()(const Adam&) const noexcept { return 2; }
  int operator()(const Lion&) const noexcept { return 1; }
  int operator()(const SGD& sgd) const noexcept { return sgd.momentum == 0.0F ? 0 : 1; }
  int operator()(const CustomOptimizer& custom) const noexcept { return custom.states; }
};

void check_group(const ParameterGroup& group) {
  expects(!group.name.empty(), "optimizer: a parameter group needs a name");
  if (group.contains == nullptr) {
    throw ContractError(fmt::format(
        "optimizer: the group '{}' does not say what it contains; set its predicate", group.name));
  }
  check_not_negative(fmt::format("`lr_scale` of group '{}'", group.name), group.lr_scale);
  if (group.weight_decay) {
    check_not_negative(fmt::format("`weight_decay` of group '{}'", group.name),
                       *group.weight_decay);
  }
}

void check_moments(MomentFormat moments, const Optimizer& optimizer) {
  if (moments == MomentFormat::fp32) { return; }
  if (const auto* custom = std::get_if<CustomOptimizer>(&optimizer)) {
    throw ConfigError(fmt::format(
        "`moments` {} has no effect, because '{}' keeps its own states in fp32; leave it at fp32",
        to_string(moments), custom->name));
  }
  if (state_count(optimizer) == 0) {
    throw ConfigError(
        fmt::format("`moments` {} has no effect, because {} keeps none; leave it at fp32",
                    to_string(moments), describe(optimizer)));
  }
}

}  // namespace

int state_count(const Optimizer& optimizer) noexcept {
  return std::visit(StateCount{}, optimizer);
}

std::string describe(const Optimizer& optimizer) {
  return std::visit(Describe{}, optimizer);
}

void validate_learning_rate(float lr) {
  check_not_negative("`lr`", lr);
}

void validate(const Optimizer& optimizer) {
  std::visit(
      [](const auto& values) {
        validate_learning_rate(values.lr);
        check_values(values);
        check_not_negative("`weight_decay`", values.weight_decay);
      },
      optimizer);
}

void validate(const OptimizerOptions& options, const Optimizer& optimizer) {
  require_enumerator("`moments`", options.moments, MomentFormat::int8);
  require_enumerator("`rounding`", options.rounding, Rounding::stochastic);
  check_not_negative("`clip_norm`", options.clip_norm);
  expects(options.decays != nullptr, "optimize_with: the decay rule is empty; pass a function");
  for (const ParameterGroup& group : options.groups) { check_group(group); }
  check_moments(options.moments, optimizer);
}

bool decays_by_rank(std::string_view /*name*/, const Shape& shape) noexcept {
  return shape.rank() >= 2;
}

}  // namespace tessera
