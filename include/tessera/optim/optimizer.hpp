#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>

#include "tessera/base/shape.hpp"
#include "tessera/base/update_rule.hpp"

namespace tessera {

using Optimizer = std::variant<AdamW, SGD>;

/// fp32 values of state per parameter: 2 for AdamW; 1, or 0 without momentum, for SGD.
[[nodiscard]] int state_count(const Optimizer& optimizer) noexcept;

/// ContractError that names the value if one is not finite or out of its range (lr >= 0,
/// 0 <= beta < 1, eps > 0, weight_decay >= 0, 0 <= momentum < 1).
void validate(const Optimizer& optimizer);

/// Which parameters decay: matrices and up, not biases and norms.
[[nodiscard]] bool decays_by_rank(std::string_view name, const Shape& shape) noexcept;

struct OptimizerOptions {
  /// The gradients' global L2 norm is cut to this: g *= min(1, clip_norm / (norm + 1e-6)).
  /// 0: not clipped.
  float clip_norm = 0.0F;
  /// True for parameters to which weight decay applies. `name` is "unit.parameter".
  std::function<bool(std::string_view name, const Shape& shape)> decays = decays_by_rank;
};

}  // namespace tessera
