// Operations between the steps of an offloaded optimizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "device/cpu/host_task.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::offload_test {
namespace {

// They run right after the step, while the host still updates.
TEST(Offload, EvaluationsAndExportsSeeTheUpdatedParameters) {
  for (const Strategy strategy : all_strategies()) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const auto train = [&](Offload offload) {
        std::vector<double> seen;
        const WorldOptions late{
            .testing = {.delays =
                            DelayInjection{.seed = 3, .longest = std::chrono::microseconds{500}}}};
        run_ranks(
            2,
            [&](World& world) {
              ToyModel toy{world,
                           {.strategy = strategy,
                            .shard_group = strategy == Strategy::hybrid ? 1 : 0,
                            .compute = compute,
                            .offload = offload},
                           {}};
              toy.model().optimize_with(AdamW{.lr = 0.05F});
              const auto note = [&](double value) {
                if (world.rank() == 0) { seen.push_back(value); }
              };
              for (int step = 0; step < 4; ++step) {
                const double loss = toy.forward_backward(2 * step + world.rank(), 1);
                toy.model().step(&loss);
                if (step % 2 == 0) {
                  auto evaluation = toy.model().evaluate();
                  note(toy.forward(0, 3));
                  evaluation.end_pass();
                  note(toy.forward(0, 3));
                } else {
                  for (const auto& [name, values] :
                       exported(toy.model(), StateTensor::parameters)) {
                    note(values.front());
                  }
                }
              }
              toy.model().export_masters(
                  [&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
                    note(values.back());
                  });
            },
            late);
        return seen;
      };
      const std::vector<double> expected = train(Offload::none);
      for (const Offload offload : {Offload::optimizer, Offload::state}) {
        EXPECT_EQ(expected, train(offload)) << to_string(strategy) << " " << to_string(offload);
      }
    }
  }
}

// Masters start with the initializer's values, not with rounded ones.
TEST(Offload, MastersStartFromTheInitializerInFull) {
  for (const Initializer& initial :
       {Initializer{init::normal(7, 0.3F)},
        Initializer{[](const ParameterInfo&, std::int64_t first, std::span<float> out) {
          for (float& x : out) { x = 1.0F / static_cast<float>(3 + first++); }
        }}}) {
    const auto masters = [&](Offload offload, MasterWeights kind = MasterWeights::fp32) {
      std::vector<float> all;
      run_ranks(1, [&](World& world) {
        ShardedModel model{world,
                           {.compute = DType::bf16, .master_weights = kind, .offload = offload}};
        (void)model.add_unit("a", {{"w", {900, 700}}});
        (void)model.add_unit("b", {{"w", {33}}});
        model.materialize(initial);
        model.optimize_with(AdamW{});
        model.export_masters(
            [&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
              all.insert(all.end(), values.begin(), values.end());
            });
      });
      return all;
    };
    const std::vector<float> expected = masters(Offload::none);
    EXPECT_EQ(expected, masters(Offload::optimizer));
    EXPECT_EQ(expected, masters(Offload::state));
    EXPECT_EQ(expected, masters(Offload::state, MasterWeights::remainder));
  }
}

/// The masters after some steps of `units` units with delayed streams. Every second step uses only
/// the first unit.
std::vector<float> masters_of(Offload offload, int units) {
  std::vector<float> all;
  const WorldOptions late{
      .testing = {.delays = DelayInjection{.seed = 5, .longest = std::chrono::microseconds{2000}}}};
  run_ranks(
      1,
      [&](World& world) {
        ShardedModel model{world, {.strategy = Strategy::zero3, .prefetch = 0, .offload = offload}};
        std::vector<Unit> declared;
        for (int i = 0; i < units; ++i) {
          declared.push_back(model.add_unit("unit." + std::to_string(i), {{"w", {64}}}));
        }
        model.materialize(init::constant(1.0F));
        model.optimize_with(AdamW{.lr = 0.1F});
        for (int step = 0; step < 6; ++step) {
          std::vector<Unit> used = declared;
          if (step % 2 == 1) { used.resize(1); }
          for (const Unit unit : used) { (void)model.forward(unit); }
          for (auto unit = used.rbegin(); unit != used.rend(); ++unit) {
            const auto backward = model.backward(*unit);
            float* const gradient = backward.grad("w");
            device::enqueue(backward.stream(), [=] { std::fill_n(gradient, 64, 1.0F); });
          }
          model.step();
        }
        model.export_masters(
            [&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
              all.insert(all.end(), values.begin(), values.end());
            });
      },
      late);
  return all;
}

// With one byte too few, an allocation fails and the earlier ones are released.
TEST(Offload, AnOptimizerThatRunsOutOfMemoryLeavesNothingBehind) {
  for (const Offload offload : {Offload::none, Offload::optimizer, Offload::state}) {
    std::size_t taken = 0;
    const auto live_after = [&](std::size_t budget) {
      std::pair<std::size_t, std::size_t> live;  // before and after optimize_with
      run_ranks(1,
                [&](World& world) {
                  ShardedModel model{world, {.offload = offload}};
                  (void)model.add_unit("u", {{"w", {5000}}});
                  model.materialize(init::constant(1.0F));
                  const auto now = [&] { return world.memory().report().live.total(); };
                  live.first = now();
                  if (budget == 0) {
                    model.optimize_with(AdamW{});
                  } else {
                    EXPECT_THROW(model.optimize_with(AdamW{}), OutOfMemory);
                  }
                  live.second = now();
                  taken = live.second - live.first;
                },
                {.budget_bytes = budget == 0 ? std::nullopt : std::optional{budget}});
      return live;
    };
    const std::size_t all = live_after(0).second;
    ASSERT_GT(taken, 0U);
    const auto [before, after] = live_after(all - 1);
    EXPECT_EQ(before, after) << to_string(offload);
  }
}

// The next step overwrites the unit's gradients with zeros and does not gather its parameters
// before.
TEST(Offload, AUnitThatAStepLeavesOutIsUpdatedByTheGradientsOfTheStepBefore) {
  EXPECT_EQ(masters_of(Offload::none, 2), masters_of(Offload::state, 2));
}

// With fewer pieces than slots, no slot in use delays the next piece.
TEST(Offload, StateIsFetchedOnceThatOfThePreviousStepIsStored) {
  EXPECT_EQ(masters_of(Offload::none, 1), masters_of(Offload::state, 1));
}

}  // namespace
}  // namespace tessera::test::offload_test
