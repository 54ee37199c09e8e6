#pragma once

#include <cstddef>
#include <vector>

#include "engine/gradient_store.hpp"
#include "tessera/comm/world.hpp"

namespace tessera::engine {

/// The fp32 master weights of what this rank's optimizer updates, for parameters of another dtype:
/// cut as the gradients that stay on the rank, so that a sharded optimizer never holds a whole
/// parameter in fp32. Nothing, and no memory, for fp32 parameters: they are their own masters.
///
/// Memory: all of it taken in the constructor, as `optimizer`; it holds anything.
class MasterStore {
 public:
  MasterStore(World& world, const Units& units, const GradientStore& gradients);

  /// The masters of elements `GradientStore::resident_range(unit, segment)`; empty if there are
  /// none.
  [[nodiscard]] View resident(std::size_t unit, std::size_t segment) const {
    return masters_[unit][segment];
  }
  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return arena_.bytes(); }

 private:
  Arena arena_;
  std::vector<std::vector<View>> masters_;  // by unit and segment
};

/// The fp32 weights that this rank's optimizer updates of a segment: elements
/// `gradients.resident_range(unit, segment)` of the masters, or of the parameters themselves.
[[nodiscard]] View updated_weights(const ParameterStore& parameters, const MasterStore& masters,
                                   const GradientStore& gradients, std::size_t unit,
                                   std::size_t segment);

}  // namespace tessera::engine
