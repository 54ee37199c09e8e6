// Ranks hold exactly the planned bytes.
#include "tessera/profile/plan.hpp"

#include <gtest/gtest.h>

#include "support/groups.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::plan_test {
namespace {

std::vector<MemoryReport> measured(int ranks, const std::function<void(World&)>& body) {
  std::vector<MemoryReport> reports(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    body(world);
    reports[static_cast<std::size_t>(world.rank())] = world.memory().report();
  });
  return reports;
}

/// One report per rank, like `measured`.
std::vector<MemoryReport> spread(const std::vector<PlannedRank>& plan) {
  std::vector<MemoryReport> reports;
  for (const PlannedRank& rank : plan) {
    EXPECT_EQ(rank.rank, std::ssize(reports));
    reports.insert(reports.end(), static_cast<std::size_t>(rank.count), rank.memory);
  }
  return reports;
}

class Plan : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Plan, ::testing::ValuesIn(tried_ranks({1, 2, 3, 4, 8}, {1, 4})),
                         ::testing::PrintToStringParamName());

TEST_P(Plan, EqualsWhatEveryRankHoldsToTheByte) {
  for (const PlannedJob& job : planned_jobs()) {
    for (const ModelOptions& options : planned_options(GetParam())) {
      const auto body = [&](World& world) { job.body(world, options); };
      const std::vector<MemoryReport> planned = spread(plan({.ranks = GetParam()}, body));
      const std::vector<MemoryReport> held = measured(GetParam(), body);
      ASSERT_EQ(planned.size(), held.size());
      for (std::size_t rank = 0; rank < held.size(); ++rank) {
        EXPECT_EQ(difference(planned[rank], held[rank]), "")
            << job.name << ", " << text_of(options) << ", rank " << rank;
        EXPECT_GT(held[rank].peak_bytes, 0U);
      }
    }
  }
}

TEST(PlanOfManyRanks, ItsRanksKnowThatTheyAreSimulated) {
  (void)plan({.ranks = 3}, [](World& world) { EXPECT_TRUE(world.simulated()); });
  run_ranks(1, [](World& world) { EXPECT_FALSE(world.simulated()); });
}

TEST(PlanDeathTest, ALoopOutsideOfComputeIsNamedWithItsRemedy) {
  EXPECT_DEATH((void)plan({},
                          [](World& world) {
                            const Buffer buffer =
                                world.allocate(Category::activations, sizeof(float), "numbers");
                            *static_cast<float*>(buffer.data()) = 1.0F;
                          }),
               "this rank only counts .* put loops that read or write tensors in World::compute");
}

TEST(PlanOfManyRanks, DistinguishesOnlyRankZero) {
  const auto ranks_of = [](Strategy strategy) {
    return plan({.ranks = 1024},
                [&](World& world) { planned_jobs().front().body(world, {.strategy = strategy}); });
  };
  const std::vector<PlannedRank> zero3 = ranks_of(Strategy::zero3);
  ASSERT_EQ(zero3.size(), 1U);
  EXPECT_EQ(zero3[0].count, 1024);
  const std::vector<PlannedRank> dp = ranks_of(Strategy::dp);
  ASSERT_EQ(dp.size(), 2U);
  EXPECT_EQ(dp[0].count, 1);
  EXPECT_EQ(dp[1].rank, 1);
  EXPECT_EQ(dp[1].count, 1023);
  EXPECT_GT(dp[0].memory.peak_bytes, dp[1].memory.peak_bytes);
}

TEST(PlanOfManyRanks, RankZeroStandsForNoOtherPlaceWithItsKey) {
  const std::vector<PlannedRank> planned =
      plan({.ranks = 3, .mesh = {{"tensor", 3}}, .tensor_key = [](int) { return "all alike"; }},
           [](World& world) {
             const Buffer part =
                 world.allocate(Category::parameters, world.rank() == 0 ? 2048 : 1024, "a part");
           });
  ASSERT_EQ(planned.size(), 2U);
  EXPECT_EQ(planned[0].ranks, std::vector<int>{0});
  EXPECT_EQ(planned[1].ranks, (std::vector<int>{1, 2}));
  EXPECT_GT(planned[0].memory.peak_bytes, planned[1].memory.peak_bytes);
}

TEST(PlanOfManyRanks, PlacesAlongTensorWithEqualKeysAreRunOnce) {
  std::vector<int> ran;
  const auto body = [&](World& world) {
    ran.push_back(world.rank());
    const int tensor = world.rank() % 4;
    const Buffer part =
        world.allocate(Category::parameters, tensor % 2 == 0 ? 1024 : 2048, "a part");
  };
  PlanOptions options{.ranks = 16,
                      .mesh = {{"pipe", 2}, {"shard", 2}, {"tensor", 4}},
                      .tensor_key = [](int tensor) { return std::to_string(tensor % 2); }};
  const std::vector<PlannedRank> planned = plan(options, body);
  EXPECT_EQ(ran, (std::vector<int>{0, 4, 1, 8, 9})) << "rank 0, then each key at each stage";
  ran.clear();
  options.tensor_key = {};
  const std::vector<PlannedRank> all = plan(options, body);
  EXPECT_EQ(ran, (std::vector<int>{0, 4, 1, 2, 3, 8, 9, 10, 11}));
  ASSERT_EQ(planned.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(planned[i].ranks, all[i].ranks);
    EXPECT_EQ(planned[i].rank, all[i].rank);
    EXPECT_EQ(planned[i].count, all[i].count);
    EXPECT_EQ(difference(planned[i].memory, all[i].memory), "");
  }
}

/// Bytes of model states of a unit of `elems` parameters under AdamW. `elems` is a multiple of
/// every rank's shard alignment.
CategoryBytes planned_states(int ranks, std::int64_t elems, const ModelOptions& options) {
  return plan({.ranks = ranks},
              [&](World& world) {
                ShardedModel model{world, options};
                const Unit unit = model.add_unit("unit", {{"w", {elems}}});
                model.materialize(init::constant(1.0F));
                model.optimize_with(AdamW{});
                (void)model.forward(unit);
                (void)model.backward(unit);
                model.step();
              })[0]
      .memory.at_peak;
}

// DESIGN section 5: 2 + 2 + 12 bytes per parameter, each divided by N where the strategy shards it.
TEST(PlanOfLowPrecision, CountsWhatTheTableOfStrategiesSays) {
  const std::size_t n = 16;
  const std::size_t elems = 64 * n * 1000;
  for (const DType low : {DType::bf16, DType::fp16}) {
    const auto states = [&](Strategy strategy, DType gradient) {
      return planned_states(static_cast<int>(n), static_cast<std::int64_t>(elems),
                            {.strategy = strategy, .compute = low, .gradient = gradient});
    };
    const auto expect = [&](Strategy strategy, std::size_t parameters, std::size_t gradients,
                            std::size_t optimizer) {
      const CategoryBytes bytes = states(strategy, low);
      EXPECT_EQ(bytes[Category::parameters], parameters) << to_string(strategy);
      EXPECT_EQ(bytes[Category::gradients], gradients) << to_string(strategy);
      EXPECT_EQ(bytes[Category::optimizer], optimizer) << to_string(strategy);
    };
    expect(Strategy::ddp, 2 * elems, 2 * elems, 12 * elems);
    expect(Strategy::zero1, 2 * elems, 2 * elems, 12 * elems / n);
    expect(Strategy::zero2, 2 * elems, 2 * elems / n, 12 * elems / n);
    expect(Strategy::zero3, 2 * elems / n, 2 * elems / n, 12 * elems / n);
    for (const std::size_t group : {1U, 4U, 16U}) {
      const CategoryBytes bytes =
          planned_states(static_cast<int>(n), static_cast<std::int64_t>(elems),
                         {.strategy = Strategy::hybrid,
                          .shard_group = static_cast<int>(group),
                          .compute = low,
                          .gradient = low});
      EXPECT_EQ(bytes[Category::parameters], 2 * elems / group);
      EXPECT_EQ(bytes[Category::gradients], 2 * elems / group);
      EXPECT_EQ(bytes[Category::optimizer], 12 * elems / group);
    }
    EXPECT_EQ(states(Strategy::ddp, DType::fp32)[Category::gradients], 4 * elems);
  }
}

TEST(PlanOfLowPrecision, CountsTwoBytesLessWithRemainders) {
  const std::size_t elems = 6400;
  for (const auto& [strategy, over] : {std::pair{Strategy::ddp, 1U}, {Strategy::zero3, 2U}}) {
    const CategoryBytes bytes = planned_states(
        2, elems,
        {.strategy = strategy, .compute = DType::bf16, .master_weights = MasterWeights::remainder});
    EXPECT_EQ(bytes[Category::optimizer], 10 * elems / over) << to_string(strategy);
  }
}

TEST(PlanOfLowPrecision, CountsTheCopyThatTravels) {
  const auto copies = [](DType gradient, DType reduce) {
    const ModelOptions options{
        .strategy = Strategy::ddp, .compute = DType::bf16, .gradient = gradient, .reduce = reduce};
    return planned_states(2, 6400, options)[Category::reduce];
  };
  EXPECT_EQ(copies(DType::fp32, DType::fp32), 0U);
  EXPECT_EQ(copies(DType::fp32, DType::bf16), 2U * 6400);
  EXPECT_EQ(copies(DType::bf16, DType::bf16), 0U);
  EXPECT_EQ(copies(DType::bf16, DType::fp32), 0U) << "a wider copy would gain nothing";
}

TEST(PlanOfLowPrecision, EqualsWhatAHandWrittenTrainerHoldsToTheByte) {
  const PlannedJob job = planned_jobs().back();
  for (const Strategy strategy : all_strategies()) {
    for (const DType low : {DType::bf16, DType::fp16}) {
      for (const DType gradient : {DType::fp32, low}) {
        const bool halves = low == DType::bf16 && gradient == low;
        const ModelOptions options{
            .strategy = strategy,
            .compute = low,
            .master_weights = halves ? MasterWeights::remainder : MasterWeights::fp32,
            .gradient = gradient,
            .loss_scaling = {.mode = LossScaleMode::off}};
        const auto body = [&](World& world) { job.body(world, options); };
        const std::vector<MemoryReport> planned = spread(plan({.ranks = 3}, body));
        const std::vector<MemoryReport> held = measured(3, body);
        for (std::size_t rank = 0; rank < held.size(); ++rank) {
          EXPECT_EQ(difference(planned[rank], held[rank]), "") << text_of(options);
        }
      }
    }
  }
}

// Values have the compute dtype; tokens, statistics and the loss do not.
TEST(PlanOfLowPrecision, CountsActivationsInTheComputeDtype) {
  const nn::DecoderConfig config{.layers = 3, .hidden = 64, .heads = 4, .vocab = 256, .seq = 64};
  simulate_rank({.rank = 0, .ranks = 4}, [&](World& world) {
    const nn::DecoderBytes wide = nn::Decoder::bytes_needed(config, {}, 2, world);
    const nn::DecoderBytes low =
        nn::Decoder::bytes_needed(config, {}, 2, world, {.compute = DType::bf16});
    const std::size_t rows = 2 * 64;
    const std::size_t others = 4 * rows * (2 + 3 * (4 + 4) + 2);  // tokens, norms, log-sum-exps
    EXPECT_EQ(2 * (low.activations - others), wide.activations - others);
    auto gpt = shard(nn::Decoder(config), world, {.compute = DType::bf16});
    gpt.module().reserve(2);
    EXPECT_EQ(world.memory().report().live[Category::activations], low.activations);
  });
}

TEST(PlanForMpi, CountsItsStaging) {
  const auto nothing = [](World&) {};
  const auto staging = [&](CommKind comm, int ranks) {
    return plan({.ranks = ranks, .backend = {.comm = comm}}, nothing)[0]
        .memory.live[Category::communicator];
  };
  EXPECT_EQ(staging(CommKind::local, 4), 0U);
  EXPECT_EQ(staging(CommKind::mpi, 1), 0U);
  EXPECT_EQ(staging(CommKind::mpi, 2), 2 * 2 * (std::size_t{1} << 20U));
  EXPECT_LE(staging(CommKind::mpi, 1000), 2 * (std::size_t{8} << 20U));
}

TEST(PlanOfABudget, RefusesTheOptionsThatARunRefuses) {
  const auto body = [](World& world) {
    planned_jobs()[1].body(world, {.strategy = Strategy::ddp});
  };
  const std::size_t peak = plan({.ranks = 2}, body)[0].memory.peak_bytes;
  PlanOptions options{.ranks = 2};
  options.world.budget_bytes = peak;
  EXPECT_EQ(plan(options, body)[0].memory.peak_bytes, peak);
  EXPECT_NO_THROW(run_ranks(2, body, options.world));
  options.world.budget_bytes = peak - 1;
  EXPECT_THROW((void)plan(options, body), OutOfMemory);
  EXPECT_THROW(run_ranks(2, body, options.world), OutOfMemory);
}

TEST(PlanOfNothingReal, IsRefusedWithTheReason) {
  const auto nothing = [](World&) {};
  try {
    (void)plan({.ranks = 0}, nothing);
    ADD_FAILURE() << "a plan of no rank";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string{error.what()},
              "`ranks` is 0: a plan needs the number of ranks, 1 or more");
  }
  EXPECT_THROW((void)plan({.ranks = 1 << 21}, nothing), ConfigError);
  EXPECT_THROW((void)plan({.ranks = 2, .backend = {.device = DeviceKind::meta}}, nothing),
               ConfigError);
  EXPECT_THROW(simulate_rank({.rank = 2, .ranks = 2}, nothing), ConfigError);
}

}  // namespace
}  // namespace tessera::test::plan_test
