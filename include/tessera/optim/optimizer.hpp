#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/moment_format.hpp"
#include "tessera/base/rounding.hpp"
#include "tessera/base/shape.hpp"
#include "tessera/base/update_rule.hpp"
#include "tessera/optim/custom_optimizer.hpp"
#include "tessera/shard/parameter_info.hpp"

namespace tessera {

/// One of the library's update rules, or the user's own.
using Optimizer = std::variant<AdamW, Adam, SGD, Lion, CustomOptimizer>;

/// Returns the number of values that the rule keeps for each element of a parameter: 2 for AdamW
/// and Adam, 1 for Lion and for SGD with momentum, 0 for SGD without, `states` for a
/// CustomOptimizer.
[[nodiscard]] int state_count(const Optimizer& optimizer) noexcept;

/// Returns a text such as "AdamW lr 0.0003 beta1 0.9 beta2 0.95 eps 1e-08 weight_decay 0.1".
[[nodiscard]] std::string describe(const Optimizer& optimizer);

/// Throws ContractError that names the value if one is not finite or out of its range (lr >= 0,
/// 0 <= beta < 1, eps > 0, weight_decay >= 0, 0 <= momentum < 1), or if a CustomOptimizer lacks a
/// name or a function or has too many states.
void validate(const Optimizer& optimizer);
/// Throws ContractError unless `lr` is finite and 0 or more.
void validate_learning_rate(float lr);

/// Returns whether `shape` has at least two extents: matrices decay, biases and norms do not.
[[nodiscard]] bool decays_by_rank(std::string_view name, const Shape& shape) noexcept;

/// Parameters that are trained at a rate and with a decay of their own.
struct ParameterGroup {
  /// The name in errors, which must not be empty.
  std::string name = {};
  /// Returns whether the group contains a parameter. It must not be empty, and must say the same on
  /// every rank. ConfigError from `optimize_with` if the group is left without a trained parameter.
  std::function<bool(const ParameterInfo&)> contains = {};
  /// The factor, 0 or more, by which the optimizer's rate is multiplied, also when it changes.
  float lr_scale = 1.0F;
  /// The decay of all parameters of the group. If it is not given, they have the optimizer's decay
  /// where `decays` says so.
  std::optional<float> weight_decay = {};
};

/// What holds for every update rule. All ranks give the same values.
struct OptimizerOptions {
  /// The L2 norm over all gradients is clipped to this: g *= min(1, clip_norm / (norm + 1e-6)).
  /// 0: gradients are not clipped.
  float clip_norm = 0.0F;
  /// Returns whether weight decay applies to a parameter. `name` is "unit.parameter".
  std::function<bool(std::string_view name, const Shape& shape)> decays = decays_by_rank;
  /// The groups with a rate or decay of their own. A parameter belongs to the first that contains
  /// it; one that no group contains has the optimizer's values.
  std::vector<ParameterGroup> groups = {};
  /// The format of the moments of AdamW, Adam, Lion and SGD. bf16 takes half the memory of fp32,
  /// int8 a quarter; int8 moments are always rounded stochastically (docs/optimizers.md) and need
  /// ModelOptions::align_elems 256. ConfigError where the rule keeps no moments or is the user's.
  MomentFormat moments = MomentFormat::fp32;
  /// How 16-bit parameters and moments are rounded when they are written. Stochastic rounding draws
  /// its bits by (seed, update, parameter, element), so that neither strategy nor number of ranks
  /// changes them. ConfigError from `optimize_with` if nothing that is written has 16 bits.
  Rounding rounding = Rounding::nearest;
  /// The seed of stochastic rounding, of parameters and of moments.
  std::uint64_t rounding_seed = 1;
};

/// Throws ContractError if a value of the options is not finite or out of its range, and
/// ConfigError for bf16 or int8 moments where `optimizer` keeps no moments of the library's.
void validate(const OptimizerOptions& options, const Optimizer& optimizer);

}  // namespace tessera
