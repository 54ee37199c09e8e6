#pragma once

#include <cstdint>

namespace tessera::nn {

/// What a layer drops of a micro-batch: kept beside its activations, so that backward, and a
/// forward that is run again, drop the same. Masks depend on these values, the sample and the
/// position in it alone: not on the ranks or the cut into micro-batches.
struct Dropout {
  float p = 0.0F;  ///< in [0, 1), with which an element is dropped; 0: nothing is computed
  std::uint64_t seed = 0;
  std::int64_t step = 0;          ///< optimizer steps made before
  std::int64_t first_sample = 0;  ///< of the micro-batch, in the step's global batch
  std::int64_t layer = 0;

  [[nodiscard]] bool on() const noexcept { return p > 0.0F; }
};

}  // namespace tessera::nn
