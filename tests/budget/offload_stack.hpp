#pragma once

#include "budget/stack.hpp"
#include "support/groups.hpp"

namespace tessera::test::offload_test {

inline ModelOptions options_of(Strategy strategy, int ranks, Offload offload = Offload::optimizer) {
  ModelOptions options;
  options.strategy = strategy;
  options.shard_group = half_of(ranks, strategy);
  options.offload = offload;
  return options;
}

/// A stack with an offloaded optimizer.
class OffloadStack : public UnitStack {
 public:
  OffloadStack(World& world, Strategy strategy, const Optimizer& optimizer = AdamW{},
               Offload offload = Offload::optimizer)
      : UnitStack{world, options_of(strategy, world.size(), offload), optimizer,
                  /*declares_order=*/true} {}
};

}  // namespace tessera::test::offload_test
