#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"

namespace tessera::nn {

// Activations and their gradients are of one dtype, that of ModelOptions::compute; parameters and
// their gradients are of the dtypes of the scope's tensors.

/// A micro-batch: `batch` sequences of `seq` tokens, laid out [batch, seq, ...] row-major.
struct BatchShape {
  std::int64_t batch = 0;  ///< the number of sequences
  std::int64_t seq = 0;    ///< the tokens of each sequence

  /// Returns the number of tokens.
  [[nodiscard]] std::int64_t rows() const noexcept { return batch * seq; }
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// What passes through a layer's backward: it reads the gradient of its output and writes the
/// gradient of its input. `scratch` is overwritten. Nothing overlaps. All are in device memory.
struct GradientFlow {
  ConstValues dy;  ///< the gradient of the output
  Values dx;       ///< the gradient of the input
  Values scratch;  ///< as large as the layer says
};

}  // namespace tessera::nn
