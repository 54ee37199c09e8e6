#pragma once

#include <vector>

#include "engine/unit/state_ring.hpp"
#include "engine/unit/update_home.hpp"
#include "world/host_pool.hpp"

namespace tessera::engine {

/// The optimizer's kernels run on the device, as UpdateOnDevice's do, over masters (or remainders)
/// and states that are parked in the rank's host pool: a StateRing brings them piece by piece. A
/// piece is a part of a segment, and its arrays move whole, whatever runs they have. Parameters and
/// gradients stay on the device. Later work that uses the parameters or overwrites the gradients
/// waits for the unit's update (ParameterHome::arrive).
class UpdateParked final : public UpdateHome {
 public:
  /// How masters are kept, the memory for them, and the ring that they pass through.
  struct Masters {
    MasterWeights kind;
    World& world;
    Arena& arena;  ///< of the host pool
    StateRing& ring;
  };
  UpdateParked(const UnitPlan& plan, ParameterHome& parameters, const GradientHome& gradients,
               const Masters& masters);

  UpdatedSegment updated(std::size_t segment) const override;
  FirstValue first_masters(std::size_t segment) const override {
    return {masters_[segment], part_, /*on_host=*/true};
  }
  void update(const UpdateRule& rule, UpdateRuns& together) override;
  [[nodiscard]] Stream state_writer() const override;

  [[nodiscard]] std::size_t piece_bytes() const override;

 private:
  [[nodiscard]] std::vector<ParkedArray> arrays_of(std::size_t segment) const;
  void update_segment(std::size_t segment, const UpdateRule& rule);

  World& world_;
  world::HostPool host_;
  ParameterHome& parameters_;
  const GradientHome& gradients_;
  StateRing& ring_;
  kernels::MasterPart part_;
  std::vector<View> masters_;  // by segment: masters, or remainders as bf16, used for the size only
};

}  // namespace tessera::engine
