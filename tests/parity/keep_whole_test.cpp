#include <gtest/gtest.h>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "support/whole_state.hpp"
#include "tessera/world/run.hpp"

// Units that are kept whole change memory and traffic, but never a bit.
namespace tessera::test::keep_whole_test {
namespace {

std::vector<ModelOptions> variants() {
  return {{},
          {.accumulate = 2, .accumulate_mode = AccumulateMode::every},
          {.accumulate = 2, .accumulate_mode = AccumulateMode::deferred},
          {.compute = DType::bf16, .master_weights = MasterWeights::remainder},
          {.compute = DType::bf16, .reduce = DType::bf16, .prefetch = 0},
          {.checks = Checks::memory},
          {.accumulate = 2, .offload = Offload::optimizer},
          {.offload = Offload::optimizer, .offload_keep = 0.5F},
          {.offload = Offload::state}};
}

class KeepWholeParity : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KeepWholeParity, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(KeepWholeParity, ChangesNoBit) {
  for (const Strategy strategy : {Strategy::zero2, Strategy::zero3, Strategy::hybrid}) {
    std::uint64_t seed = 0;
    for (const ModelOptions& variant : variants()) {
      ToyRun run;
      run.ranks = GetParam();
      run.steps = 4;
      run.options = variant;
      run.options.strategy = strategy;
      run.options.shard_group = half_of(GetParam(), strategy);
      run.toy.blocks = ++seed % 2 == 0 ? 2 : 6;  // all of two are whole, and none of six
      run.toy.declared_order = seed % 3 == 0;
      const ToyOutcome expected = run_toy(run);
      run.options.keep_whole = KeepWhole::where_smaller;
      run.world.testing.poison = SlotPoison::nan;
      run.world.testing.delays = DelayInjection{seed, std::chrono::microseconds{40}};
      EXPECT_EQ(difference(expected, run_toy(run)), "")
          << to_string(strategy) << ", variant " << seed;
    }
  }
}

TEST_P(KeepWholeParity, TheStateFitsAModelThatShardsAllUnits) {
  WholeState whole;
  WholeState sharded;
  const ModelOptions never{.strategy = Strategy::zero3};
  const ModelOptions smaller{.strategy = Strategy::zero3, .keep_whole = KeepWhole::where_smaller};
  run_ranks(GetParam(), [&](World& world) {
    const auto trained = [&](const ModelOptions& options, WholeState& to) {
      ToyModel toy{world, options, {}};
      toy.model().optimize_with(AdamW{});
      for (int step = 0; step < 2; ++step) {
        const double loss = toy.forward_backward(std::int64_t{step} * 9, 3);
        toy.model().step(&loss);
      }
      save_state(world, toy.model(), to);
    };
    trained(smaller, whole);
    trained(never, sharded);
  });
  EXPECT_EQ(whole.not_partitioned(), "");
  EXPECT_EQ(difference(whole, sharded), "");
  std::vector<std::map<std::string, std::vector<float>>> outcomes;
  for (const ModelOptions& options : {never, smaller}) {
    run_ranks(GetParam(), [&](World& world) {
      ToyModel toy{world, options, {}};
      toy.model().optimize_with(AdamW{});
      load_state(toy.model(), options.keep_whole == never.keep_whole ? whole : sharded);
      const double loss = toy.forward_backward(18, 3);
      toy.model().step(&loss);
      const double evaluated = [&] {
        const auto evaluation = toy.model().evaluate();
        return toy.forward(0, 3);
      }();
      auto all = exported(toy.model(), StateTensor::parameters);
      all["evaluated"] = {static_cast<float>(evaluated)};
      if (world.rank() == 0) { outcomes.push_back(std::move(all)); }
    });
  }
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

}  // namespace
}  // namespace tessera::test::keep_whole_test
