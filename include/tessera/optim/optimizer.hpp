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

/// An update rule of the library, or one that the user writes.
using Optimizer = std::variant<AdamW, Adam, SGD, Lion, CustomOptimizer>;

/// Returns the number of values that the rule keeps for each element of a parameter: 2 for AdamW
/// and Adam, 1 for Lion and for SGD with momentum, 0 for SGD without, `states` for a
/// CustomOptimizer.
[[nodiscard]] int state_count(const Optimizer& optimizer) noexcept;

/// Returns a text such as "AdamW lr 0.0003 beta1 0.9 beta2 0.95 eps 1e-08 weight_decay 0.1".
[[nodiscard]] std::string describe(const Optimizer& optimizer);

/// Throws ContractError that names the value if one is not finite or out of range (lr >= 0,
/// 0 <= beta < 1, eps > 0, weight_decay >= 0, 0 <= momentum < 1), or if a CustomOptimizer lacks a
/// name or a function or has too many states.
void validate(const Optimizer& optimizer);
/// Throws ContractError unless `lr` is finite and 0 or more.
void validate_learning_rate(float lr);

/// Returns whether a parameter decays by the default rule: its shape has at least two extents.
/// Matrices decay, biases and norms do not.
[[nodiscard]] bool decays_by_rank(std::string_view name, const Shape& shape) noexcept;

/// A group of parameters with its own learning rate and weight decay.
struct ParameterGroup {
  /// The name in errors, which must not be empty.
  std::string name = {};
  /// Returns whether the group contains a parameter. The function must not be empty, and must
  /// return the same on every rank. ConfigError from `optimize_with` if the group contains no
  /// trained parameter that no earlier group contains.
  std::function<bool(const ParameterInfo&)> contains = {};
  /// The factor, 0 or more, by which the optimizer's current rate is multiplied.
  float lr_scale = 1.0F;
  /// The decay of all parameters of the group. If it is not given, they have the optimizer's decay
  /// where `decays` says so.
  std::optional<float> weight_decay = {};
};

/// Options for every update rule. All ranks give the same values.
struct OptimizerOptions {
  /// The L2 norm over all gradients is clipped to this: g *= min(1, clip_norm / (norm + 1e-6)).
  /// 0: gradients are not clipped.
  float clip_norm = 0.0F;
  /// Returns whether weight decay applies to a parameter. `name` is "unit.parameter".
  std::function<bool(std::string_view name, const Shape& shape)> decays = decays_by_rank;
  /// Groups of parameters with their own rate or decay. A parameter belongs to the first group that
  /// contains it, or has the optimizer's values if none does.
  std::vector<ParameterGroup> groups = {};
  /// The format of the moments of AdamW, Adam, Lion and SGD. bf16 takes half the memory of fp32,
  /// int8 a quarter. int8 moments are always rounded stochastically (docs/optimizers.md), and need
  /// a model that was made with ModelOptions::align_elems = kMomentBlock (256) or a multiple of it.
  /// ConfigError if the rule keeps no moments or is a CustomOptimizer.
  MomentFormat moments = MomentFormat::fp32;
  /// How 16-bit parameters and moments are rounded when they are written. Stochastic rounding draws
  /// its bits by (seed, update, parameter, element), so that they depend neither on the strategy
  /// nor on the number of ranks. ConfigError from `optimize_with` if neither parameters nor moments
  /// have 16 bits.
  Rounding rounding = Rounding::nearest;
  /// The seed of stochastic rounding, of parameters and of moments.
  std::uint64_t rounding_seed = 1;
};

/// Throws ContractError if a value of the options is not finite or out of range, and ConfigError
/// for bf16 or int8 moments if `optimizer` is a CustomOptimizer or keeps no moments.
void validate(const OptimizerOptions& options, const Optimizer& optimizer);

}  // namespace tessera
