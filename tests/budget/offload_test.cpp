// Memory of an offloaded optimizer on the device and on the host, and what overlaps what.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "budget/offload_stack.hpp"
#include "support/toy_model.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::offload_test {
namespace {

constexpr auto kNothing = [](int) {};

/// Elements of the trainable segments that this rank's optimizer updates.
std::size_t updated_elems(World& world, const ShardedModel& model) {
  std::int64_t elems = 0;
  for (std::size_t u = 0; u < model.unit_count(); ++u) {
    for (const SegmentLayout& segment : model.layout(model.unit(u)).segments()) {
      elems += segment.trainable() ? segment.padded_elems() : 0;
    }
  }
  const ModelOptions& options = model.options();
  switch (traits_of(options.strategy).optimizer) {
    case Holding::replicated:
      return static_cast<std::size_t>(elems);
    case Holding::rank0:
      return world.rank() == 0 ? static_cast<std::size_t>(elems) : 0;
    case Holding::sharded:
      break;
  }
  const int over = options.shard_group > 0 ? options.shard_group : world.size();
  return static_cast<std::size_t>(elems / over);
}

class OffloadBytes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadBytes, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

TEST_P(OffloadBytes, OptimizerBytesAreAllOnTheHostByTheFormula) {
  for (const Strategy strategy : all_strategies()) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      run_ranks(GetParam(), [&](World& world) {
        ModelOptions options = options_of(strategy, GetParam());
        options.compute = compute;
        ToyModel toy{world, options, {}};
        toy.model().optimize_with(AdamW{});
        const double loss = toy.forward_backward(world.rank(), 1);
        toy.model().step(&loss);
        const std::size_t elems = updated_elems(world, toy.model());
        // Master, two moments and gradient; in 16 bits also the copy that returns to the device.
        const std::size_t host = elems * (16 + (compute == DType::fp32 ? 0 : 2));
        const ModelStateBytes state = toy.model().state_bytes();
        EXPECT_EQ(state.optimizer, 0U) << to_string(strategy);
        EXPECT_EQ(state.host, host) << to_string(strategy);
        const CategoryBytes live = world.memory().report().live;
        EXPECT_EQ(live[Category::optimizer], 0U) << to_string(strategy);
        EXPECT_EQ(live[Category::gradients], state.gradients);
        const CategoryBytes away = world.host_memory().report().live;
        EXPECT_EQ(away[Category::gradients], 4 * elems);
        EXPECT_EQ(away[Category::optimizer] + away[Category::gradients], host);
      });
    }
  }
}

// The host has masters and moments; the device has the gradients and a ring for three pieces.
TEST_P(OffloadBytes, TheDeviceHoldsTheRingAndTheHostTheStateByTheFormula) {
  struct Kept {
    DType compute;
    MasterWeights masters;
    std::size_t bytes;  // per element: master or remainder, and two moments
  };
  for (const Strategy strategy : all_strategies()) {
    for (const Kept& kept : {Kept{DType::fp32, MasterWeights::fp32, 8},
                             {DType::bf16, MasterWeights::fp32, 12},
                             {DType::bf16, MasterWeights::remainder, 10}}) {
      run_ranks(GetParam(), [&](World& world) {
        ModelOptions options = options_of(strategy, GetParam(), Offload::state);
        options.compute = kept.compute;
        options.master_weights = kept.masters;
        ShardedModel model{world, options};
        (void)model.add_unit("large", {{"weight", {64, 256}}});
        (void)model.add_unit("small", {{"weight", {16, 256}}});
        model.materialize(init::constant(0.5F));
        model.optimize_with(AdamW{});
        const std::size_t elems = updated_elems(world, model);
        const ModelStateBytes state = model.state_bytes();
        EXPECT_EQ(state.host, elems * kept.bytes) << to_string(strategy);
        const std::size_t largest = elems * 64 / (64 + 16);
        EXPECT_EQ(state.optimizer, 0U) << to_string(strategy);
        EXPECT_EQ(world.memory().report().live[Category::optimizer], 3 * largest * kept.bytes)
            << to_string(strategy);
        EXPECT_EQ(world.memory().report().in_use[Category::optimizer], 0U);
        const CategoryBytes away = world.host_memory().report().live;
        EXPECT_EQ(away.total(), state.host);
        EXPECT_EQ(away[Category::optimizer], state.host);
      });
    }
  }
}

// Where backward adds into slots, the device keeps no gradients.
TEST_P(OffloadBytes, GradientsInSlotsDoNotStayOnTheDevice) {
  for (const Strategy strategy : all_strategies()) {
    for (const int accumulate : {1, 2}) {
      run_ranks(GetParam(), [&](World& world) {
        ModelOptions options = options_of(strategy, GetParam());
        options.accumulate = accumulate;
        const bool in_slots = traits_of(strategy).gradients == Holding::sharded;
        ToyModel toy{world, options, {}};
        EXPECT_EQ(toy.model().state_bytes().gradients == 0,
                  in_slots || (strategy == Strategy::dp && world.rank() > 0))
            << to_string(strategy);
      });
    }
  }
}

TEST_P(OffloadBytes, AreAsPlannedInBothPools) {
  using Way = std::pair<Offload, float>;
  for (const Strategy strategy : all_strategies()) {
    for (const auto& [offload, keep] :
         {Way{Offload::optimizer, 0.0F}, Way{Offload::optimizer, 0.5F}, Way{Offload::state, 0.0F},
          Way{Offload::state, 0.5F}}) {
      ModelOptions options = options_of(strategy, GetParam(), offload);
      options.offload_keep = keep;
      options.compute = DType::bf16;
      options.accumulate = keep > 0.0F ? 2 : 1;
      const auto train = [&](World& world) {
        ShardedModel model{world, options};
        std::vector<Unit> units;
        for (int i = 0; i < 4; ++i) {
          units.push_back(model.add_unit("unit." + std::to_string(i), {{"weight", {300, 7}}}));
        }
        model.declare_order(units);
        model.materialize(init::normal(1, 0.02F));
        model.optimize_with(AdamW{});
        for (int micro = 0; micro < options.accumulate; ++micro) {
          for (const Unit unit : units) { (void)model.forward(unit); }
          std::for_each(units.rbegin(), units.rend(),
                        [&](Unit unit) { (void)model.backward(unit); });
        }
        model.step();
      };
      PlanOptions planned;
      planned.ranks = GetParam();
      const std::vector<PlannedRank> plans = plan(planned, train);
      run_ranks(GetParam(), [&](World& world) {
        train(world);
        const PlannedRank& mine = *std::ranges::find_if(plans, [&](const PlannedRank& rank) {
          return rank.rank <= world.rank() && world.rank() < rank.rank + rank.count;
        });
        EXPECT_EQ(world.memory().report().peak_bytes, mine.memory.peak_bytes);
        EXPECT_EQ(world.memory().report().at_peak, mine.memory.at_peak);
        EXPECT_EQ(world.host_memory().report().peak_bytes, mine.host_peak_bytes);
        EXPECT_EQ(mine.host_peak_bytes == 0, strategy == Strategy::dp && world.rank() > 0);
      });
    }
  }
}

class OffloadSteps : public ::testing::TestWithParam<std::tuple<int, Offload>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadSteps,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(Offload::optimizer, Offload::state)));

TEST_P(OffloadSteps, AllocateNothingAfterTheFirst) {
  const int ranks = std::get<0>(GetParam());
  const Offload offload = std::get<1>(GetParam());
  for (const Strategy strategy : all_strategies()) {
    run_ranks(ranks, [&](World& world) {
      ModelOptions options = options_of(strategy, ranks, offload);
      options.accumulate = 2;
      ToyModel toy{world, options, {}};
      toy.model().optimize_with(AdamW{});
      const auto allocations = [&] {
        return world.memory().report().allocations + world.host_memory().report().allocations;
      };
      const auto step = [&] {
        (void)toy.forward_backward(0, 3);
        const double loss = toy.forward_backward(3, 3);
        toy.model().step(&loss);
      };
      step();
      const auto before = allocations();
      for (int i = 0; i < 4; ++i) { step(); }
      EXPECT_EQ(allocations(), before) << to_string(strategy);
    });
  }
}

TEST(OffloadKeep, LeavesTheStateOfTheLastUnitsOnTheDevice) {
  run_ranks(2, [](World& world) {
    ModelOptions options = options_of(Strategy::zero3, 2);
    options.offload_keep = 0.5F;
    ShardedModel model{world, options};
    for (int i = 0; i < 4; ++i) {
      (void)model.add_unit("unit." + std::to_string(i), {{"weight", {256}}});
    }
    model.materialize(init::constant(0.0F));
    model.optimize_with(AdamW{});
    EXPECT_EQ(model.state_bytes(), (ModelStateBytes{4 * 512, 4 * 256, 8 * 256, 16 * 256}));
  });
}

/// Waits until a span of this kind has ended; false after 20 seconds.
bool ends(World& world, trace::Kind kind, const std::string& what, int block) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (std::chrono::steady_clock::now() < deadline) {
    for (const trace::Record& record : world.recorder()->records()) {
      if (record.kind == kind && record.what == what &&
          record.unit == "block." + std::to_string(block)) {
        return true;
      }
    }
    std::this_thread::yield();
  }
  return false;
}

// Each scope waits for the copy that should overlap it. Without overlap the wait times out and the
// test fails.
TEST(OffloadBackward, GradientsLeaveWhileTheUnitBeforeComputes) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    run_ranks(2,
              [&](World& world) {
                OffloadStack stack{world, strategy};
                stack.forward(kNothing);
                const bool in_buckets = strategy == Strategy::ddp;
                stack.backward([&](int i) {
                  if (i == 3 || in_buckets) { return; }
                  EXPECT_TRUE(ends(world, trace::Kind::copy, "offload", i + 1)) << i;
                });
                stack.model().step();
              },
              {.trace = true});
  }
}

TEST(OffloadBackward, NormsAreSquaredOnTheHostWhileTheUnitBeforeComputes) {
  run_ranks(2,
            [](World& world) {
              OffloadStack stack{world, Strategy::zero3};
              stack.forward(kNothing);
              stack.backward([&](int i) {
                if (i < 3) { EXPECT_TRUE(ends(world, trace::Kind::host, "norm", i + 1)) << i; }
              });
              stack.model().step();
            },
            {.trace = true});
}

class OffloadOverlap : public ::testing::TestWithParam<Offload> {};
INSTANTIATE_TEST_SUITE_P(Ways, OffloadOverlap,
                         ::testing::Values(Offload::optimizer, Offload::state));

TEST_P(OffloadOverlap, UnitsAreUpdatedAndSentWhileTheNextForwardUsesThoseBefore) {
  // Copied after the update: masters to the host, or parameters to the device.
  const char* const sent = GetParam() == Offload::state ? "offload" : "reload";
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2,
              [&](World& world) {
                OffloadStack stack{world, strategy, AdamW{}, GetParam()};
                stack.forward(kNothing);
                stack.backward(kNothing);
                world.recorder()->clear();
                stack.model().step();
                const bool updates = strategy != Strategy::dp || world.rank() == 0;
                stack.forward([&](int i) {
                  if (i == 3 || !updates) { return; }
                  EXPECT_TRUE(ends(world, trace::Kind::host, "update", i + 1)) << i;
                  EXPECT_TRUE(ends(world, trace::Kind::copy, sent, i + 1)) << i;
                });
              },
              {.trace = true});
  }
}

}  // namespace
}  // namespace tessera::test::offload_test
