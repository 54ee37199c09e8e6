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

using Optimizer = std::variant<AdamW, Adam, SGD, Lion, CustomOptimizer>;

/// Values of state per parameter: 2 for AdamW and Adam; 1 for Lion; 1, or 0 without momentum, for
/// SGD; a CustomOptimizer's `states`.
[[nodiscard]] int state_count(const Optimizer& optimizer) noexcept;

/// "AdamW lr 0.0003 beta1 0.9 beta2 0.95 eps 1e-08 weight_decay 0.1".
[[nodiscard]] std::string describe(const Optimizer& optimizer);

/// ContractError that names the value if one is not finite or out of its range (lr >= 0,
/// 0 <= beta < 1, eps > 0, weight_decay >= 0, 0 <= momentum < 1; a name, states and a function of a
/// CustomOptimizer).
void validate(const Optimizer& optimizer);
/// ContractError unless `lr` is finite and >= 0.
void validate_learning_rate(float lr);

/// Which parameters decay: matrices and up, not biases and norms.
[[nodiscard]] bool decays_by_rank(std::string_view name, const Shape& shape) noexcept;

/// Parameters that are trained at a rate and with a decay of their own.
struct ParameterGroup {
  std::string name = {};
  std::function<bool(const ParameterInfo&)> contains = {};
  float lr_scale = 1.0F;                   ///< times the model's rate, also as a schedule moves it
  std::optional<float> weight_decay = {};  ///< of all its parameters; if not given, the optimizer's
                                           ///< for those that `decays`
};

struct OptimizerOptions {
  /// The gradients' global L2 norm is cut to this: g *= min(1, clip_norm / (norm + 1e-6)).
  /// 0: not clipped.
  float clip_norm = 0.0F;
  /// True for parameters to which weight decay applies. `name` is "unit.parameter".
  std::function<bool(std::string_view name, const Shape& shape)> decays = decays_by_rank;
  /// A parameter belongs to the first that contains it, or to none: the optimizer's own rate.
  std::vector<ParameterGroup> groups = {};
  /// Of the moments of AdamW, Adam, Lion and SGD. bf16 takes half the memory, int8 a quarter: codes
  /// of 8 bits, which are always rounded stochastically (see docs/optimizers.md). It asks for
  /// ModelOptions::align_elems 256.
  MomentFormat moments = MomentFormat::fp32;
  /// Of 16-bit parameters and moments when they are written. Stochastic rounding draws its bits by
  /// (seed, update, parameter, element), so no strategy and no number of ranks changes them.
  Rounding rounding = Rounding::nearest;
  std::uint64_t rounding_seed = 1;
};

/// As above for the options' own values. ConfigError for what has no effect: bf16 or int8
/// moments where `optimizer` keeps none, or keeps a user's.
void validate(const OptimizerOptions& options, const Optimizer& optimizer);

}  // namespace tessera
