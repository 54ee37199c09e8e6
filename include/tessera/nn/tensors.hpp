#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"

namespace tessera::nn {

// Activations and their gradients are of one dtype, that of ModelOptions::compute; parameters and
// their gradients are of the dtypes of the scope's tensors.

/// A micro-batch: `batch` sequences of `seq` tokens, laid out [batch, seq, ...] row-major.
struct BatchShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;

  [[nodiscard]] std::int64_t rows() const noexcept { return batch * seq; }
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// What passes through a layer's backward: the gradient of its output comes in, the gradient of
/// its input is written. `scratch` is overwritten; nothing overlaps.
struct GradientFlow {
  ConstValues dy;
  Values dx;
  Values scratch;
};

}  // namespace tessera::nn
