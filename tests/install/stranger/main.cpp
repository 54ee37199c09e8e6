// Fits y = w x on four ranks with the parameters sharded. Returns 0 if w is close.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <tessera/engine/sharded_model.hpp>
#include <tessera/world/run.hpp>

namespace {

constexpr float kTrueWeight = 3.0F;

void train(tessera::World& world, std::atomic<int>& near) {
  tessera::ModelOptions options;
  options.strategy = tessera::Strategy::zero3;
  tessera::ShardedModel model(world, options);
  const auto line = model.add_unit("line", {{"weight", {1}}});
  model.materialize(tessera::init::constant(0.0F));
  model.optimize_with(tessera::SGD{.lr = 0.1F, .momentum = 0.0F});

  const float x = 1.0F + 0.25F * static_cast<float>(world.rank());
  float weight = 0;
  for (int step = 0; step < 50; ++step) {
    {
      const auto p = model.forward(line);  // gathered here, released at the brace
      world.compute([&] { weight = static_cast<const float*>(p["weight"])[0]; });
    }
    {
      const auto g = model.backward(line);  // gathered here, reduced at the brace
      world.compute([&] {
        float* gradient = g.grad("weight");
        gradient[0] += 2 * (weight - kTrueWeight) * x * x;
      });
    }
    model.step();
  }
  if (std::abs(weight - kTrueWeight) < 1e-3F) { ++near; }
}

}  // namespace

int main() {
  std::atomic<int> near{0};
  tessera::run_ranks(4, [&](tessera::World& world) { train(world, near); });
  std::printf("%d of 4 ranks found the weight\n", near.load());
  return near == 4 ? 0 : 1;
}
