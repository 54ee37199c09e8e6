#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// Waits that injected communication delays cannot test, because they give computation more time.
namespace tessera::test::ordering_test {
namespace {

/// Blocks the compute stream until a collective called `label` has finished, which must not need
/// the stream; otherwise until a timeout, long enough for a collective that does not wait.
void hold_compute(World& world, const char* label) {
  trace::Recorder* const recorder = world.recorder();
  recorder->clear();
  device::enqueue(world.compute_stream(), [recorder, label] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{20};
    while (std::chrono::steady_clock::now() < until) {
      for (const trace::Record& record : recorder->records()) {
        if (record.kind == trace::Kind::collective && record.unit.starts_with(label)) { return; }
      }
      std::this_thread::yield();
    }
  });
}

TEST(Ordering, TheStepsScalarsAreReducedWhenTheyHaveBeenComputed) {
  for (const Strategy strategy : tried_strategies()) {
    run_ranks(3,
              [&](World& world) {
                ShardedModel model{world, {.strategy = strategy}};
                const Unit a = model.add_unit("a", {{"w", {200}}});
                model.materialize(init::constant(1.0F));
                model.optimize_with(SGD{.lr = 0.0F});
                for (int step = 1; step <= 3; ++step) {
                  (void)model.forward(a);
                  {
                    const auto g = model.backward(a);
                    float* const gradient = g.grad("w");
                    device::enqueue(g.stream(), [=] { gradient[0] = static_cast<float>(step); });
                  }
                  hold_compute(world, "step");
                  model.step();
                  // Three fp32 gradients are added, and divided by 3: at most 3 roundings.
                  EXPECT_NEAR(model.report().grad_norm, step, 3 * unit_roundoff(DType::fp32) * step)
                      << to_string(strategy);
                }
              },
              {.trace = true, .testing = {.compute_stream = ComputeStream::worker}});
  }
}

// Momentum moves a unit in steps that do not use it, while its gather of the previous step may
// still run (a race that thread sanitizer detects).
TEST(Ordering, AUnitThatMostStepsLeaveOutAgreesUnderEveryStrategy) {
  const auto run = [](Strategy strategy, std::optional<DelayInjection> delays) {
    std::map<std::string, std::vector<float>> parameters;
    run_ranks(3,
              [&](World& world) {
                ShardedModel model{world, {.strategy = strategy}};
                const std::vector<Unit> units{model.add_unit("a", {{"w", {64}}}),
                                              model.add_unit("b", {{"w", {100'000}}})};
                model.materialize(init::normal(1, 1.0F));
                model.optimize_with(SGD{.lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.1F});
                for (int step = 0; step < 12; ++step) {
                  const Unit used = units[step % 4 == 0 ? 1 : 0];
                  (void)model.forward(used);
                  {
                    const auto g = model.backward(used);
                    float* const gradient = g.grad("w");
                    const float* const weight = g["w"];
                    device::enqueue(g.stream(), [=] { gradient[0] += 1.0F + weight[0]; });
                  }
                  model.step();
                }
                auto all = exported(model, StateTensor::parameters);
                if (world.rank() == 1) { parameters = std::move(all); }
              },
              {.testing = {.poison = SlotPoison::nan,
                           .delays = delays,
                           .compute_stream = ComputeStream::worker}});
    return parameters;
  };
  const auto expected = run(Strategy::ddp, {});
  for (const Strategy strategy : tried_strategies()) {
    for (std::uint64_t seed = 1; seed <= (TESSERA_SANITIZED ? 2 : 4); ++seed) {
      EXPECT_EQ(run(strategy, DelayInjection{.seed = seed}), expected) << to_string(strategy);
    }
  }
}

}  // namespace
}  // namespace tessera::test::ordering_test
