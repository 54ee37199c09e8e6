#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"

namespace tessera::nn {

// Activations and their gradients have one dtype, ModelOptions::compute; parameters and their
// gradients have the dtypes of the scope's tensors.

/// The shape of a micro-batch: `batch` sequences of `seq` tokens, [batch, seq, ...] row-major.
struct BatchShape {
  std::int64_t batch = 0;  ///< the number of sequences
  std::int64_t seq = 0;    ///< the number of tokens of each sequence

  /// Returns the number of tokens.
  [[nodiscard]] std::int64_t rows() const noexcept { return batch * seq; }
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// The arrays of a layer's backward, in device memory. They must not overlap.
struct GradientFlow {
  ConstValues dy;  ///< the gradient of the output, read
  Values dx;       ///< the gradient of the input, written
  Values scratch;  ///< scratch memory, overwritten; `backward` of the layer says how large it is
};

}  // namespace tessera::nn
