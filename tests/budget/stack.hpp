#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::test {

/// Four blocks whose passes a test defines.
class UnitStack {
 public:
  UnitStack(World& world, const ModelOptions& options, const Optimizer& optimizer = AdamW{},
            bool declares_order = false)
      : model_{world, options} {
    for (int i = 0; i < 4; ++i) {
      units_.push_back(model_.add_unit("block." + std::to_string(i), {{"weight", {50, 50}}}));
    }
    if (declares_order) { model_.declare_order(units_); }
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

}  // namespace tessera::test
