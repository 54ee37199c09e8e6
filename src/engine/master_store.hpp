#pragma once

#include <cstddef>
#include <vector>

#include "engine/gradient_store.hpp"
#include "engine/parameter_store.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/engine/master_weights.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The fp32 master weights of what this rank's optimizer updates, for parameters of another dtype,
/// or the remainders of them: cut as the gradients that stay on the rank, so that a sharded
/// optimizer never holds a whole parameter in fp32. Nothing, and no memory, for fp32 parameters:
/// they are their own masters; and for offloaded units: see HostWeights.
///
/// Memory: all of it taken in the constructor, as `optimizer`; it holds anything.
class MasterStore {
 public:
  MasterStore(World& world, const Units& units, const GradientStore& gradients, MasterWeights kind);

  /// What is kept of elements `GradientStore::resident_range(unit, segment)`: masters, or
  /// remainders, whose dtype is bf16 for its size alone. Empty if there is nothing.
  [[nodiscard]] View resident(std::size_t unit, std::size_t segment) const {
    return kept_[unit][segment];
  }
  [[nodiscard]] kernels::MasterPart part() const noexcept { return part_; }
  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return arena_.bytes(); }

 private:
  Arena arena_;
  kernels::MasterPart part_;
  std::vector<std::vector<View>> kept_;  // by unit and segment
};

/// The weights that this rank's optimizer updates of a segment: elements
/// `gradients.resident_range(unit, segment)`. Empty is what there is none of.
struct UpdatedWeights {
  View masters = {};     ///< fp32: whole masters, or parameters that are their own
  View parameters = {};  ///< of 16 bits: the rounded copies
  View remainders = {};  ///< in place of masters
};
[[nodiscard]] UpdatedWeights updated_weights(const ParameterStore& parameters,
                                             const MasterStore& masters,
                                             const GradientStore& gradients, std::size_t unit,
                                             std::size_t segment);

}  // namespace tessera::engine
