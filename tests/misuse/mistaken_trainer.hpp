#pragma once

#include <memory>

#include "tessera/tessera.hpp"

namespace tessera::test {

/// Two trainable units of one weight each, of 15 and 10 elements.
struct MistakenTrainer {
  explicit MistakenTrainer(World& world, const ModelOptions& options = {})
      : model{std::make_unique<ShardedModel>(world, options)},
        a{model->add_unit("a", {{"w", {3, 5}}})},
        b{model->add_unit("b", {{"w", {10}}})} {
    model->materialize(init::constant(0.5F));
    model->optimize_with(SGD{.lr = 0.5F, .momentum = 0.0F});
  }
  void forward() {
    (void)model->forward(a);
    (void)model->forward(b);
  }
  void backward() {
    for (const Unit unit : {b, a}) { model->backward(unit).grad("w")[0] += 1.0F; }
  }
  void pass() {
    forward();
    backward();
  }
  /// Adds `value` to element `at` of the gradient, and keeps the pointer.
  float* add(Unit unit, int at, float value) {
    const auto g = model->backward(unit);
    float* const gradient = g.grad("w");
    gradient[at] += value;
    return gradient;
  }

  std::unique_ptr<ShardedModel> model;
  Unit a;
  Unit b;
};

/// Runs `body` on `ranks` ranks.
template <class Body>
auto on(int ranks, Body body, const WorldOptions& options = {}) {
  return [ranks, body, options] { run_ranks(ranks, body, options); };
}

/// Runs `use` with a trainer on two ranks.
template <class Use>
auto trainer(const ModelOptions& options, Use use) {
  return on(2, [options, use](World& world) {
    MistakenTrainer trainer{world, options};
    use(trainer);
  });
}

inline const ModelOptions kPlain{.strategy = Strategy::zero3};
inline const ModelOptions kStrict{.strategy = Strategy::zero3, .checks = Checks::strict};
inline const ModelOptions kMemory{.strategy = Strategy::zero3, .checks = Checks::memory};

}  // namespace tessera::test
