#pragma once

#include <cstdint>

namespace tessera::nn {

/// The dropout of a layer in a micro-batch. It is kept beside the layer's activations, so that
/// backward and a recomputed forward drop the same elements. A mask depends only on these values,
/// the sample and the position in it, not on ranks or micro-batches.
struct Dropout {
  float p = 0.0F;          ///< the probability, in [0, 1), that an element is dropped; 0: none is
  std::uint64_t seed = 0;  ///< the key of the random numbers
  std::int64_t step = 0;   ///< the number of optimizer steps made so far
  std::int64_t first_sample = 0;  ///< the micro-batch's first sample in the step's global batch
  std::int64_t layer = 0;         ///< the number of the layer

  /// Returns whether elements are dropped.
  [[nodiscard]] bool on() const noexcept { return p > 0.0F; }
};

}  // namespace tessera::nn
