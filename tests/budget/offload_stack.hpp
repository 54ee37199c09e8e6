#pragma once

#include <string>
#include <vector>

#include "support/groups.hpp"
#include "support/toy_model.hpp"

namespace tessera::test::offload_test {

inline ModelOptions options_of(Strategy strategy, int ranks) {
  ModelOptions options;
  options.strategy = strategy;
  options.shard_group = half_of(ranks, strategy);
  options.offload = Offload::optimizer;
  return options;
}

/// Four blocks whose passes do what a test says.
class Stack {
 public:
  Stack(World& world, Strategy strategy, const Optimizer& optimizer = AdamW{})
      : model_{world, options_of(strategy, world.size())} {
    for (int i = 0; i < 4; ++i) {
      units_.push_back(model_.add_unit("block." + std::to_string(i), {{"weight", {50, 50}}}));
    }
    model_.declare_order(units_);
    model_.materialize(init::normal(1, 0.1F));
    model_.optimize_with(optimizer);
  }
  ShardedModel& model() { return model_; }

  template <class During>
  void forward(const During& during) {
    for (int i = 0; i < 4; ++i) {
      const auto p = model_.forward(units_[static_cast<std::size_t>(i)]);
      during(i);
    }
  }
  template <class During>
  void backward(const During& during) {
    for (int i = 3; i >= 0; --i) {
      const auto g = model_.backward(units_[static_cast<std::size_t>(i)]);
      during(i);
    }
  }

 private:
  ShardedModel model_;
  std::vector<Unit> units_;
};

}  // namespace tessera::test::offload_test
