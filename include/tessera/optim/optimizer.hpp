#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>

#include "tessera/base/shape.hpp"

namespace tessera {

/// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), all arithmetic in fp32:
///
///   m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g^2
///   w <- w - lr ( m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + wd w )
struct AdamW {
  float lr = 3e-4F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  float weight_decay = 0.1F;
};

/// Stochastic gradient descent with momentum (no dampening, no Nesterov) and coupled decay:
///
///   g <- g + wd w        u <- mu u + g        w <- w - lr u
///
/// With momentum 0 there is no u and no optimizer memory.
struct SGD {
  float lr = 1e-2F;
  float momentum = 0.9F;
  float weight_decay = 0.0F;
};

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
