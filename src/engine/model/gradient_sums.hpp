#pragma once

#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/unit/live_units.hpp"

namespace tessera::engine {

/// Adds gradients once a step: parts that ranks along `tensor` hold, and units that several places
/// along `pipe` share. It runs after the reduction over data ranks, so that only shards travel, and
/// before the norms.
///
/// Time:   `add` enqueues between the compute stream's earlier and later work.
class GradientSums {
 public:
  /// *Collective.* `units` outlive it.
  GradientSums(World& world, LiveUnits& units, const Sharding& group);

  /// *Collective.* After every micro-batch's reduction has been issued. The second call of a step
  /// does nothing.
  void add();
  /// Whether this step's gradients have been added, so that no more may be added to them.
  [[nodiscard]] bool added() const noexcept { return added_; }
  /// Marks the next step's gradients as not yet added.
  void next_step() noexcept { added_ = false; }

 private:
  struct Sum {
    const char* label;
    Channel channel;
    std::vector<View> gradients;
  };

  template <class Includes>
  void plan(const char* label, const Channel& channel, const Includes& includes);

  World& world_;
  LiveUnits& units_;
  std::vector<Sum> sums_;  // in order: a unit that places share may also have parts along tensor
  bool added_ = false;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
