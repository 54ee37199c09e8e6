// Shard groups of every size: one group equals zero3, groups of one equal ddp, and sizes between
// give the same bits wherever the order of sums is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <ostream>

#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::hybrid_test {
namespace {

ToyRun hybrid(ToyRun run, int group) {
  run.options.strategy = Strategy::hybrid;
  run.options.shard_group = group;
  return run;
}

ToyRun under(ToyRun run, Strategy strategy) {
  run.options.strategy = strategy;
  return run;
}

struct Variant {
  const char* name;
  ToyRun run;
};

std::vector<Variant> variants() {
  ToyRun plain;
  plain.steps = 8;
  std::vector<Variant> all{{"fp32, clipped", plain}};
  ToyRun narrow = plain;
  narrow.options.compute = DType::bf16;
  narrow.options.gradient = DType::bf16;
  all.push_back({"bf16", narrow});
  ToyRun wire = plain;
  wire.options.reduce = DType::bf16;
  all.push_back({"bf16 on the wire", wire});
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ToyRun accumulating = plain;
    accumulating.steps = 5;
    accumulating.options.accumulate = 3;
    accumulating.options.accumulate_mode = mode;
    all.push_back({mode == AccumulateMode::every ? "every" : "deferred", accumulating});
  }
  ToyRun disturbed = all[3].run;
  disturbed.world.testing.poison = SlotPoison::nan;
  disturbed.world.testing.delays =
      DelayInjection{.seed = 3, .longest = std::chrono::microseconds{200}};
  all.push_back({"every, poisoned and delayed", disturbed});
  ToyRun narrow_sums = all[3].run;
  narrow_sums.options.compute = DType::bf16;
  narrow_sums.options.gradient = DType::bf16;
  all.push_back({"every, bf16", narrow_sums});
  return all;
}

class HybridOn : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HybridOn,
                         ::testing::ValuesIn(tried_ranks({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3})),
                         ::testing::PrintToStringParamName());

TEST_P(HybridOn, OneGroupIsZero3AndGroupsOfOneAreDdpToTheBit) {
  const int ranks = GetParam();
  for (Variant& variant : variants()) {
    variant.run.ranks = ranks;
    const ToyOutcome zero3 = run_toy(under(variant.run, Strategy::zero3));
    EXPECT_EQ(difference(zero3, run_toy(hybrid(variant.run, ranks))), "") << variant.name;
    ToyRun deeper = hybrid(variant.run, ranks);
    deeper.options.prefetch = 3;
    EXPECT_EQ(difference(zero3, run_toy(deeper)), "") << variant.name;
    const ToyOutcome ddp = run_toy(under(variant.run, Strategy::ddp));
    EXPECT_EQ(difference(ddp, run_toy(hybrid(variant.run, 1))), "") << variant.name;
  }
}

TEST(Hybrid, OnSixteenRanksToo) {
  ToyRun run = variants()[3].run;
  run.ranks = 16;
  run.steps = 3;
  EXPECT_EQ(difference(run_toy(under(run, Strategy::zero3)), run_toy(hybrid(run, 16))), "");
  EXPECT_EQ(difference(run_toy(under(run, Strategy::ddp)), run_toy(hybrid(run, 1))), "");
}

TEST(Hybrid, MeshesOfOneDimensionAreDdpAndZero3ToTheBit) {
  ToyRun run;
  run.ranks = 4;
  run.steps = 4;
  const auto on = [&run](Strategy strategy, const char* dimension) {
    ToyRun on_mesh = under(run, strategy);
    on_mesh.options.mesh = {{dimension, 4}};
    return run_toy(on_mesh);
  };
  const ToyOutcome ddp = run_toy(under(run, Strategy::ddp));
  for (const Strategy strategy : {Strategy::dp, Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    EXPECT_EQ(difference(ddp, on(strategy, "replicate")), "") << to_string(strategy);
  }
  for (const Strategy strategy : {Strategy::zero2, Strategy::hybrid}) {
    EXPECT_EQ(difference(ddp, on(strategy, "shard")), "") << to_string(strategy);
  }
}

// All threads of a process are on one machine.
TEST(Hybrid, GroupsAreTheRanksOfAMachineUnlessTold) {
  ToyRun run;
  run.ranks = 3;
  EXPECT_EQ(difference(run_toy(hybrid(run, 3)), run_toy(hybrid(run, 0))), "");
  run_ranks(3, [](World& world) {
    ToyModel whole{world, {.strategy = Strategy::hybrid}, {}};
    ToyModel third{world, {.strategy = Strategy::zero3}, {}};
    EXPECT_EQ(whole.model().state_bytes(), third.model().state_bytes());
  });
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    square += static_cast<double>(a[i]) * a[i];
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return error == 0.0 ? 0.0 : std::sqrt(error / square);
}

void expect_close(const ToyOutcome& a, const ToyOutcome& b, const ToyBounds& within) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], within.loss * a.losses.front()) << "step " << i;
  }
  EXPECT_NEAR(a.norms.front(), b.norms.front(), within.gradient * a.norms.front());
  for (const auto& [name, gradient] : a.first_gradients) {
    EXPECT_LT(relative_error(gradient, b.first_gradients.at(name)), within.gradient) << name;
  }
}

class HybridBetween : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HybridBetween, ::testing::Values(2, 3, 4, 6, 8, 16),
                         ::testing::PrintToStringParamName());

TEST_P(HybridBetween, EveryDivisorLearnsWhatZero3LearnsInFiftySteps) {
  ToyRun run;
  run.ranks = GetParam();
  run.toy.batch = 1;
  run.steps = TESSERA_SANITIZED ? 10 : 50;
  run.optimizer = AdamW{.lr = 0.003F};
  const ToyOutcome expected = run_toy(under(run, Strategy::zero3));
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (const int group : divisors(GetParam())) {
    SCOPED_TRACE(group);
    expect_close(expected, run_toy(hybrid(run, group)), between_orders(run));
  }
}

struct Cut {
  int ranks;
  int group;
};
void PrintTo(const Cut& cut, std::ostream* out) {
  *out << cut.ranks << " ranks in groups of " << cut.group;
}
std::vector<Cut> cuts() {
  if (TESSERA_SANITIZED) { return {{4, 2}, {6, 3}}; }
  return {{4, 2}, {6, 2}, {6, 3}, {8, 4}};
}
class HybridCut : public ::testing::TestWithParam<Cut> {
 protected:
  [[nodiscard]] static ToyRun run(int steps) {
    ToyRun run;
    run.ranks = GetParam().ranks;
    run.steps = steps;
    return hybrid(run, GetParam().group);
  }
};
INSTANTIATE_TEST_SUITE_P(Cuts, HybridCut, ::testing::ValuesIn(cuts()), [](const auto& tested) {
  return std::to_string(tested.param.ranks) + "_in_groups_of_" + std::to_string(tested.param.group);
});

/// Largest difference of gradients summed in different orders, relative to their norm: half a unit
/// in the last place for each rounding on both sides, if all went the same way.
double most_apart(const ToyRun& run) {
  const int micro_batches = run.options.accumulate;
  if (run.options.gradient == DType::fp32 && run.options.reduce == DType::fp32) {
    return order_difference(std::int64_t{run.ranks} * micro_batches);
  }
  // Roundings to 16 bits: zero3's sum over the ranks, hybrid's sums within and across groups, and
  // on both sides the sum over micro-batches.
  return (3 * micro_batches + 2 * (micro_batches - 1)) * unit_roundoff(DType::bf16);
}

// With SGD a gradient's error reaches the weights at its own scale; AdamW would normalise it.
TEST_P(HybridCut, SumsAreThoseOfZero3HoweverTheyAreMade) {
  for (Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    ToyRun& run = variant.run;
    run.ranks = GetParam().ranks;
    run.steps = 3;
    run.optimizer = SGD{.lr = 0.1F};
    run.clip_norm = 0.0F;
    const ToyOutcome a = run_toy(under(run, Strategy::zero3));
    const ToyOutcome b = run_toy(hybrid(run, GetParam().group));
    const double bound = most_apart(run);
    for (const auto& [name, gradient] : a.first_gradients) {
      EXPECT_LT(relative_error(gradient, b.first_gradients.at(name)), bound) << name;
    }
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(a.norms[step], b.norms[step], 2 * bound * a.norms[step]) << step;
      EXPECT_NEAR(a.losses[step], b.losses[step], bound * a.losses[step]) << step;
    }
  }
}

TEST_P(HybridCut, NothingButTheOrderOfSumsChangesABit) {
  const ToyOutcome expected = run_toy(run(6));
  const auto expect_same = [&](const ToyRun& other, const std::string& what) {
    EXPECT_EQ(difference(expected, run_toy(other)), "") << what;
  };
  for (const int prefetch : {0, 2, 5}) {
    ToyRun other = run(6);
    other.options.prefetch = prefetch;
    other.toy.declared_order = prefetch == 2;
    expect_same(other, "prefetch " + std::to_string(prefetch));
  }
  for (const std::uint64_t seed : {1U, 2U}) {
    ToyRun other = run(6);
    other.world.testing.poison = SlotPoison::nan;
    other.world.testing.delays =
        DelayInjection{.seed = seed, .longest = std::chrono::microseconds{400}};
    expect_same(other, "delays " + std::to_string(seed));
  }
  ToyRun threads = run(6);
  threads.world.threads = 3;
  expect_same(threads, "threads");
  ToyRun kept = run(6);
  kept.options.reshard = Reshard::after_backward;
  kept.options.tuning.prefetch_backward = 0;
  expect_same(kept, "reshard after backward");
  ToyRun persisting = run(6);
  persisting.options.persist_elems = 1'000'000;
  expect_same(persisting, "persist");
}

TEST_P(HybridCut, AccumulationIsTheSameUnderDelaysAndPoison) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ToyRun accumulating = run(4);
    accumulating.options.accumulate = 3;
    accumulating.options.accumulate_mode = mode;
    const ToyOutcome expected = run_toy(accumulating);
    accumulating.world.testing.poison = SlotPoison::nan;
    accumulating.world.testing.delays = DelayInjection{.seed = 9};
    EXPECT_EQ(difference(expected, run_toy(accumulating)), "") << to_string(mode);
  }
}

std::vector<MeshDim> mesh_of(const Cut& cut) {
  return {{"replicate", cut.ranks / cut.group}, {"shard", cut.group}};
}

// Strategies that shard less keep more on the ranks of the same groups.
TEST_P(HybridCut, EveryStrategyThatShardsHasTheSameBitsOnTheSameMesh) {
  std::vector<Variant> all = variants();
  ToyRun offloaded = all[1].run;
  offloaded.options.offload = Offload::optimizer;
  all.push_back({"bf16, offloaded", offloaded});
  for (Variant& variant : all) {
    variant.run.ranks = GetParam().ranks;
    variant.run.steps = 4;
    const ToyOutcome expected = run_toy(hybrid(variant.run, GetParam().group));
    for (const Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
      ToyRun on_mesh = under(variant.run, strategy);
      on_mesh.options.mesh = mesh_of(GetParam());
      EXPECT_EQ(difference(expected, run_toy(on_mesh)), "")
          << variant.name << ", " << to_string(strategy);
    }
  }
}

TEST_P(HybridCut, AMeshWhoseShardsAreNotNeighboursLearnsTheSame) {
  ToyRun whole = run(5);
  whole.options.shard_group = 0;
  const ToyOutcome expected = run_toy(under(whole, Strategy::zero3));
  std::vector<ToyOutcome> outcomes;
  for (const Strategy strategy : {Strategy::zero1, Strategy::hybrid}) {
    ToyRun on_mesh = under(whole, strategy);
    on_mesh.options.mesh = mesh_of(GetParam());
    std::ranges::reverse(on_mesh.options.mesh);
    outcomes.push_back(run_toy(on_mesh));
    expect_close(expected, outcomes.back(), between_orders(whole));
  }
  EXPECT_EQ(difference(outcomes[0], outcomes[1]), "");
}

// A copy that diverges would train another model.
TEST_P(HybridCut, CopiesStayBitIdentical) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const auto ranks = static_cast<std::size_t>(GetParam().ranks);
    const auto group = static_cast<std::size_t>(GetParam().group);
    std::vector<std::vector<float>> kept(ranks);
    run_ranks(GetParam().ranks, [&](World& world) {
      ToyModel toy{
          world,
          {.strategy = Strategy::hybrid, .shard_group = GetParam().group, .compute = compute},
          {}};
      toy.model().optimize_with(AdamW{.lr = 0.02F});
      for (int step = 0; step < 5; ++step) {
        const double loss = toy.forward_backward(step * world.size() + world.rank(), 1);
        toy.model().step(&loss);
      }
      toy.model().export_masters(
          [&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
            auto& mine = kept[static_cast<std::size_t>(world.rank())];
            mine.insert(mine.end(), values.begin(), values.end());
          });
    });
    EXPECT_NE(kept[0], kept[1]) << "each rank of a group has a part of its own";
    for (std::size_t rank = group; rank < ranks; ++rank) {
      EXPECT_EQ(kept[rank], kept[rank - group]) << "rank " << rank;
    }
  }
}

TEST_P(HybridCut, AStepIsSkippedByAllAndTheLastOfTooManyNamesItsOrigin) {
  ToyRun spoilt = run(7);
  spoilt.options.loss_scaling = {.mode = LossScaleMode::dynamic, .growth_interval = 3};
  const int last = GetParam().ranks - 1;
  spoilt.spoilt = {{.value = HUGE_VALF, .rank = last, .step = 2},
                   {.value = std::nanf(""), .rank = 0, .step = 4}};
  const ToyOutcome outcome = run_toy(spoilt);
  EXPECT_EQ(outcome.skipped, (std::vector<bool>{false, false, true, false, true, false, false}));
  const ToyOutcome zero3 = run_toy([&] {
    ToyRun run = under(spoilt, Strategy::zero3);
    run.options.shard_group = 0;
    return run;
  }());
  EXPECT_EQ(outcome.skipped, zero3.skipped);
  EXPECT_EQ(outcome.loss_scales, zero3.loss_scales);

  spoilt.options.max_skips = 1;
  try {
    (void)run_toy(spoilt);
    ADD_FAILURE() << "the run was not ended";
  } catch (const NumericError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'block.1' on rank " + std::to_string(last)));
  }
}

}  // namespace
}  // namespace tessera::test::hybrid_test
