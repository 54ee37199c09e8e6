#pragma once

#include "engine/unit/update_home.hpp"

namespace tessera::engine {

/// The optimizer's kernels run on the compute stream, over device memory, together with those of
/// other units. Parameters of 16 bits have master weights, or their remainders, cut like the
/// gradients that stay on the rank, so that a sharded optimizer never holds a whole parameter in
/// fp32. Parameters of fp32 are their own masters.
class UpdateOnDevice final : public UpdateHome {
 public:
  /// How masters are kept, and the memory for them.
  struct Masters {
    MasterWeights kind;
    World& world;
    Arena& arena;
  };
  UpdateOnDevice(const UnitPlan& plan, const ParameterHome& parameters,
                 const GradientHome& gradients, const Masters& masters);

  UpdatedSegment updated(std::size_t segment) const override;
  FirstValue first_masters(std::size_t segment) const override {
    return {masters_[segment], part_};
  }
  void update(const UpdateRule& rule, UpdateRuns& together) override;

 private:
  World& world_;
  const ParameterHome& parameters_;
  const GradientHome& gradients_;
  kernels::MasterPart part_;
  std::vector<View> masters_;  // by segment: masters, or remainders as bf16, used for the size only
};

}  // namespace tessera::engine
