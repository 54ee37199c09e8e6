#pragma once

#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/unit/live_units.hpp"

namespace tessera::engine {

/// Adds, once a step, the gradients that ranks along `tensor` have in parts, and those of units
/// that several places along `pipe` share. They come after the reduction over data ranks, so that
/// shards travel, and before norms.
///
/// Time:   `add` enqueues between what the compute stream has and what it gets next.
class GradientSums {
 public:
  /// *Collective.* `units` outlive it.
  GradientSums(World& world, LiveUnits& units, const Sharding& group);

  /// *Collective.* After every micro-batch's reduction has been issued. The second call of a step
  /// does nothing.
  void add();
  /// The next step's gradients have not been added.
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
  std::vector<Sum> sums_;  // in order: what places share may be in parts too
  bool added_ = false;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
