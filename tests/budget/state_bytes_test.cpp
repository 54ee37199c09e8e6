#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// Compares what each strategy keeps with the formula of the layout (DESIGN section 5).
namespace tessera::test::state_bytes_test {
namespace {

std::int64_t padded_sum(const ShardedModel& model, bool frozen_too) {
  std::int64_t elems = 0;
  for (std::size_t u = 0; u < model.unit_count(); ++u) {
    for (const SegmentLayout& segment : model.layout(model.unit(u)).segments()) {
      if (segment.trainable() || frozen_too) { elems += segment.padded_elems(); }
    }
  }
  return elems;
}

/// The number of ranks that share each part.
struct Over {
  std::int64_t parameters = 1;
  std::int64_t gradients = 1;
  std::int64_t optimizer = 1;
};

void expect_state(int ranks, const ModelOptions& options, const Over& over) {
  run_ranks(ranks, [&](World& world) {
    ToyModel toy{world, options, {}};
    toy.model().optimize_with(AdamW{});
    const std::int64_t all = padded_sum(toy.model(), true);
    const std::int64_t trainable = padded_sum(toy.model(), false);
    EXPECT_LT(trainable, all);
    const ModelStateBytes expected{static_cast<std::size_t>(4 * all / over.parameters),
                                   static_cast<std::size_t>(4 * trainable / over.gradients),
                                   static_cast<std::size_t>(8 * trainable / over.optimizer)};
    EXPECT_EQ(toy.model().state_bytes(), expected) << to_string(options.strategy);
    const CategoryBytes live = world.memory().report().live;
    EXPECT_EQ(live[Category::parameters], expected.parameters);
    EXPECT_EQ(live[Category::gradients], expected.gradients);
    EXPECT_EQ(live[Category::optimizer], expected.optimizer);
  });
}

class StateBytes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StateBytes, ::testing::Values(1, 2, 3, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_P(StateBytes, EqualTheTableOnEveryRank) {
  const int n = GetParam();
  expect_state(n, {.strategy = Strategy::ddp}, {});
  expect_state(n, {.strategy = Strategy::zero1}, {.optimizer = n});
  expect_state(n, {.strategy = Strategy::zero2}, {.gradients = n, .optimizer = n});
  expect_state(n, {.strategy = Strategy::zero3}, {n, n, n});
}

TEST_P(StateBytes, OnAMeshAreThoseOfTheRanksAlongShard) {
  for (const int group : divisors(GetParam())) {
    SCOPED_TRACE(group);
    const std::vector<MeshDim> mesh{{"replicate", GetParam() / group}, {"shard", group}};
    expect_state(GetParam(), {.strategy = Strategy::zero1, .mesh = mesh}, {.optimizer = group});
    expect_state(GetParam(), {.strategy = Strategy::zero2, .mesh = mesh},
                 {.gradients = group, .optimizer = group});
    expect_state(GetParam(), {.strategy = Strategy::zero3, .mesh = mesh}, {group, group, group});
    expect_state(GetParam(), {.strategy = Strategy::hybrid, .shard_group = group},
                 {group, group, group});
  }
}

TEST_P(StateBytes, DataParallelKeepsEverythingOnRankZeroAndCopiesReplicas) {
  run_ranks(GetParam(), [&](World& world) {
    ToyModel toy{world, {.strategy = Strategy::dp}, {}};
    toy.model().optimize_with(AdamW{});
    const auto all = static_cast<std::size_t>(4 * padded_sum(toy.model(), true));
    const auto trainable = static_cast<std::size_t>(4 * padded_sum(toy.model(), false));
    const bool owner = world.rank() == 0;
    const ModelStateBytes nothing{};
    EXPECT_EQ(toy.model().state_bytes(),
              owner ? (ModelStateBytes{all, trainable, 2 * trainable}) : nothing);
    const CategoryBytes live = world.memory().report().live;
    EXPECT_EQ(live[Category::gather], owner ? 0U : all);
    EXPECT_EQ(live[Category::reduce], owner ? 0U : trainable);
    EXPECT_EQ(live[Category::optimizer], owner ? 2 * trainable : 0U);
  });
}

TEST_P(StateBytes, DeferredAccumulationKeepsWholeGradientsAndModeEveryDoesNot) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    run_ranks(GetParam(), [&](World& world) {
      ToyModel toy{
          world, {.strategy = Strategy::zero3, .accumulate = 2, .accumulate_mode = mode}, {}};
      const auto whole = static_cast<std::size_t>(4 * padded_sum(toy.model(), false));
      const std::size_t shard = whole / static_cast<std::size_t>(world.size());
      EXPECT_EQ(toy.model().state_bytes().gradients,
                mode == AccumulateMode::deferred ? whole : shard);
    });
  }
}

// A ring has prefetch + 1 slots as large as the largest block, or one slot for each block if there
// are fewer blocks. Each root unit has a slot of its own.
TEST_P(StateBytes, SlotsAreTheRingAndTheRoots) {
  for (const auto& [strategy, ahead] : {std::pair{Strategy::zero3, 0},
                                        {Strategy::zero3, 1},
                                        {Strategy::hybrid, 1},
                                        {Strategy::zero3, 2},
                                        {Strategy::hybrid, 7}}) {
    const ModelOptions options{
        .strategy = strategy, .shard_group = half_of(GetParam(), strategy), .prefetch = ahead};
    run_ranks(GetParam(), [&, prefetch = ahead](World& world) {
      ToyModel toy{world, options, {}};
      std::size_t largest = 0;
      std::size_t all = 0;
      std::size_t largest_gradient = 0;
      const auto unit_bytes = [&](Unit unit, bool frozen_too) {
        std::size_t bytes = 0;
        for (const SegmentLayout& s : toy.model().layout(unit).segments()) {
          if (s.trainable() || frozen_too) {
            bytes += 4 * static_cast<std::size_t>(s.padded_elems());
          }
        }
        return bytes;
      };
      for (std::size_t u = 1; u < toy.model().unit_count(); ++u) {
        largest = std::max(largest, unit_bytes(toy.model().unit(u), true));
        all += unit_bytes(toy.model().unit(u), true);
        largest_gradient = std::max(largest_gradient, unit_bytes(toy.model().unit(u), false));
      }
      const std::size_t blocks = toy.model().unit_count() - 1;
      const std::size_t ring = static_cast<std::size_t>(prefetch) + 1;
      const std::size_t slots = ring < blocks ? ring * largest : all;
      const CategoryBytes live = world.memory().report().live;
      EXPECT_EQ(live[Category::gather], slots + unit_bytes(toy.root(), true));
      EXPECT_EQ(live[Category::reduce], 2 * largest_gradient + unit_bytes(toy.root(), false));
    });
  }
}

TEST_P(StateBytes, NothingIsAllocatedAfterTheFirstStepAndThePeakStays) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(GetParam(), [&](World& world) {
      ToyModel toy{world, {.strategy = strategy, .shard_group = half_of(GetParam(), strategy)}, {}};
      toy.model().optimize_with(AdamW{});
      MemoryReport second;
      for (int step = 0; step < 8; ++step) {
        const double loss = toy.forward_backward(std::int64_t{step} * 3, 3);
        toy.model().step(&loss);
        if (step == 1) { second = world.memory().report(); }
      }
      const MemoryReport last = world.memory().report();
      EXPECT_EQ(second.allocations, last.allocations) << to_string(strategy);
      EXPECT_EQ(second.live, last.live);  // and so is the peak of each step in between
    });
  }
}

// 2 bytes per element instead of 4, on every rank that has masters.
TEST_P(StateBytes, RemaindersTakeTwoBytesLessOfEachTrainedParameter) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(GetParam(), [&](World& world) {
      ModelOptions options{.strategy = strategy,
                           .shard_group = half_of(GetParam(), strategy),
                           .compute = DType::bf16};
      const auto state_of = [&](MasterWeights kind) {
        options.master_weights = kind;
        ToyModel toy{world, options, {}};
        toy.model().optimize_with(AdamW{});
        const ModelStateBytes state = toy.model().state_bytes();
        EXPECT_EQ(world.memory().report().live[Category::optimizer], state.optimizer);
        return std::pair{state, static_cast<std::size_t>(padded_sum(toy.model(), false))};
      };
      const auto [whole, elems] = state_of(MasterWeights::fp32);
      const auto halves = state_of(MasterWeights::remainder).first;
      const std::size_t held = whole.optimizer / 12;  // trained parameters on this rank
      EXPECT_EQ(held * 12, whole.optimizer);
      EXPECT_TRUE(held <= elems && (held > 0 || strategy == Strategy::dp));
      EXPECT_EQ(whole.optimizer - halves.optimizer, 2 * held) << to_string(strategy);
      EXPECT_EQ(whole.parameters, halves.parameters);
      EXPECT_EQ(whole.gradients, halves.gradients);
    });
  }
}

TEST(StateBytesOfFrozenModels, FrozenParametersCostNeitherGradientNorOptimizer) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2, [&](World& world) {
      ShardedModel model{world, {.strategy = strategy}};
      (void)model.add_unit("base", {{"weight", {100, 100}, /*trainable=*/false}});
      (void)model.add_unit("adapter", {{"a", {100, 4}}});
      model.materialize(init::normal(1, 0.1F));
      model.optimize_with(AdamW{});
      EXPECT_LE(model.state_bytes().gradients, 4U * 512U);
      EXPECT_LE(model.state_bytes().optimizer, 8U * 512U);
    });
  }
}

}  // namespace
}  // namespace tessera::test::state_bytes_test
