#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support/groups.hpp"
#include "support/traced_toy.hpp"

// Compares bytes and calls of every collective of a step with DESIGN section 5, and the events of a
// step with literal lists; checks threads from the trace.
namespace tessera::test::traffic_test {
namespace {

ToyRun run_of(int ranks, Strategy strategy) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = 3;
  run.options.strategy = strategy;
  return run;
}

class TrafficOf : public ::testing::TestWithParam<int> {
 protected:
  /// Bytes that one rank sends in an all-gather or a reduce-scatter of `bytes`.
  [[nodiscard]] static std::size_t part(std::size_t bytes) {
    const auto n = static_cast<std::size_t>(GetParam());
    return bytes * (n - 1) / n;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, TrafficOf, ::testing::Values(1, 2, 3, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_P(TrafficOf, DdpAllReducesEveryGradientOnceInBuckets) {
  const Traced t = trace_last_step(run_of(GetParam(), Strategy::ddp));
  const std::size_t gradients = t.root_gradients + t.blocks_gradients;
  for (const auto& records : t.records) {
    // The toy fits one bucket: one batch with one operation per unit that has gradients.
    EXPECT_EQ(traffic_of(records), (Traffic{{"all_reduce", {t.units, 2 * part(gradients)}}}));
    std::set<std::string> batches;
    for (const trace::Record& record : records) {
      if (record.kind == trace::Kind::collective && record.unit != "step") {
        batches.insert(record.unit);
      }
    }
    EXPECT_EQ(batches.size(), 1U);
  }
}

/// The labels of what rank 0 submitted, in order.
std::vector<std::string> batches_of(const Traced& t) {
  std::vector<std::string> batches;
  for (const trace::Record& record : t.records.front()) {
    const bool follows = !batches.empty() && batches.back() == record.unit;
    if (record.kind == trace::Kind::collective && !follows) { batches.push_back(record.unit); }
  }
  return batches;
}

TEST_P(TrafficOf, DdpSendsABucketWhenItIsFull) {
  ToyRun run = run_of(GetParam(), Strategy::ddp);
  run.options.tuning.first_bucket_bytes = 1;
  run.options.bucket_bytes = 1;
  const std::vector<std::string> one_by_one = {"reduce head",    "reduce block.2", "reduce block.1",
                                               "reduce block.0", "reduce root",    "step"};
  EXPECT_EQ(batches_of(trace_last_step(run)), one_by_one);
}

// Each step begins with a small bucket, so that communication starts early.
TEST_P(TrafficOf, DdpFillsLaterBucketsFurtherThanTheFirstOfAStep) {
  ToyRun run = run_of(GetParam(), Strategy::ddp);
  run.toy.tied_head = false;
  const Traced t = trace_last_step(run);
  run.options.tuning.first_bucket_bytes = 1;
  run.options.bucket_bytes = 2 * t.blocks_gradients / static_cast<std::size_t>(t.blocks);
  EXPECT_EQ(batches_of(trace_last_step(run)),
            (std::vector<std::string>{"reduce block.2", "reduce block.1 block.0", "reduce root",
                                      "step"}));
}

TEST_P(TrafficOf, OtherStrategiesReduceEachUnitAlone) {
  for (const Strategy strategy :
       {Strategy::dp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    const Traced t = trace_last_step(run_of(GetParam(), strategy));
    const auto reductions = std::ranges::count_if(
        batches_of(t), [](const std::string& batch) { return batch.starts_with("reduce "); });
    EXPECT_EQ(reductions, t.units) << to_string(strategy);
  }
}

TEST_P(TrafficOf, ZeroOneAndTwoReduceScatterGradientsAndGatherParametersOnce) {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    const Traced t = trace_last_step(run_of(GetParam(), strategy));
    const std::size_t gradients = t.root_gradients + t.blocks_gradients;
    for (const auto& records : t.records) {
      EXPECT_EQ(traffic_of(records), (Traffic{{"all_gather", {t.units, part(gradients)}},
                                              {"reduce_scatter", {t.units, part(gradients)}}}))
          << to_string(strategy);
    }
  }
}

TEST_P(TrafficOf, GradientsReducedInBf16SendHalfTheBytes) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2}) {
    ToyRun run = run_of(GetParam(), strategy);
    const std::string name = strategy == Strategy::ddp ? "all_reduce" : "reduce_scatter";
    const Traffic whole = traffic_of(trace_last_step(run).records.front());
    run.options.reduce = DType::bf16;
    const Traffic half = traffic_of(trace_last_step(run).records.front());
    EXPECT_EQ(2 * half.at(name).bytes, whole.at(name).bytes) << name;
    EXPECT_EQ(half.at(name).calls, whole.at(name).calls) << name;
  }
}

// The blocks send 2 psi; the root stays gathered between forward and backward.
TEST_P(TrafficOf, ZeroThreeGathersBlocksTwiceAndTheRootOnce) {
  for (const int prefetch : {0, 1, 3}) {
    ToyRun run = run_of(GetParam(), Strategy::zero3);
    run.options.prefetch = prefetch;
    const Traced t = trace_last_step(run);
    const std::size_t gradients = t.root_gradients + t.blocks_gradients;
    for (const auto& records : t.records) {
      EXPECT_EQ(
          traffic_of(records),
          (Traffic{{"all_gather",
                    {2 * t.segments_of_blocks + 1, 2 * part(t.blocks_bytes) + part(t.root_bytes)}},
                   {"reduce_scatter", {t.units, part(gradients)}}}));
    }
  }
}

TEST_P(TrafficOf, DataParallelGoesThroughRankZero) {
  const Traced t = trace_last_step(run_of(GetParam(), Strategy::dp));
  const auto peers = static_cast<std::size_t>(GetParam()) - 1;
  const std::size_t parameters = t.root_bytes + t.blocks_bytes;
  const std::size_t gradients = t.root_gradients + t.blocks_gradients;
  for (std::size_t rank = 0; rank < t.records.size(); ++rank) {
    EXPECT_EQ(
        traffic_of(t.records[rank]),
        (Traffic{{"broadcast", {t.segments_of_blocks + 1, rank == 0 ? peers * parameters : 0}},
                 {"reduce", {t.units, rank == 0 ? 0 : gradients}}}));
  }
}

TEST_P(TrafficOf, AccumulationReducesEachMicroBatchOrOnce) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
      ToyRun run = run_of(GetParam(), strategy);
      run.options.accumulate = 3;
      run.options.accumulate_mode = mode;
      const Traced t = trace_last_step(run);
      const std::size_t gradients = t.root_gradients + t.blocks_gradients;
      const int times = mode == AccumulateMode::every ? 3 : 1;
      const bool ddp = strategy == Strategy::ddp;
      const Count expected{times * t.units,
                           static_cast<std::size_t>(times) * (ddp ? 2 : 1) * part(gradients)};
      EXPECT_EQ(traffic_of(t.records.front()).at(ddp ? "all_reduce" : "reduce_scatter"), expected)
          << to_string(strategy) << " " << to_string(mode);
    }
  }
}

TEST_P(TrafficOf, ZeroOneAndTwoOnAMeshAllReduceShardsAcross) {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    for (const int group : divisors(GetParam())) {
      const int copies = GetParam() / group;
      ToyRun run = run_of(GetParam(), strategy);
      run.options.mesh = {{"replicate", copies}, {"shard", group}};
      const Traced t = trace_last_step(run);
      const auto s = static_cast<std::size_t>(group);
      const auto r = static_cast<std::size_t>(copies);
      const std::size_t gradients = t.root_gradients + t.blocks_gradients;
      Traffic expected{{"all_gather", {t.units, gradients * (s - 1) / s}},
                       {"reduce_scatter", {t.units, gradients * (s - 1) / s}}};
      if (copies > 1) { expected["all_reduce"] = {t.units, 2 * (gradients / s) * (r - 1) / r}; }
      for (const auto& records : t.records) {
        EXPECT_EQ(traffic_of(records), expected) << to_string(strategy) << " " << group;
      }
    }
  }
}

// DESIGN section 5: zero3 inside a group, an all-reduce of 2 psi / S across the groups.
TEST_P(TrafficOf, HybridIsZeroThreeWithinAGroupAndAllReducesShardsAcross) {
  for (const int group : divisors(GetParam())) {
    ToyRun run = run_of(GetParam(), Strategy::hybrid);
    run.options.shard_group = group;
    const Traced t = trace_last_step(run);
    const auto s = static_cast<std::size_t>(group);
    const std::size_t groups = static_cast<std::size_t>(GetParam()) / s;
    const std::size_t gathered = 2 * t.blocks_bytes + t.root_bytes;
    const std::size_t reduced = t.root_gradients + t.blocks_gradients;
    Traffic expected{{"all_gather", {2 * t.segments_of_blocks + 1, gathered * (s - 1) / s}},
                     {"reduce_scatter", {t.units, reduced * (s - 1) / s}}};
    if (groups > 1) {
      expected["all_reduce"] = {t.units, 2 * (reduced / s) * (groups - 1) / groups};
    }
    for (const auto& records : t.records) { EXPECT_EQ(traffic_of(records), expected) << group; }
  }
}

TEST_P(TrafficOf, HybridReducesAcrossGroupsWhenItReducesWithin) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ToyRun run = run_of(4, Strategy::hybrid);
    run.options.shard_group = 2;
    run.options.accumulate = 3;
    run.options.accumulate_mode = mode;
    const Traced t = trace_last_step(run);
    const std::size_t reduced = t.root_gradients + t.blocks_gradients;
    const int times = mode == AccumulateMode::every ? 3 : 1;
    const Traffic traffic = traffic_of(t.records.front());
    const Count within{times * t.units, static_cast<std::size_t>(times) * reduced / 2};
    EXPECT_EQ(traffic.at("reduce_scatter"), within) << to_string(mode);
    EXPECT_EQ(traffic.at("all_reduce"), within) << "of halves, there and back between two groups";
  }
}

TEST_P(TrafficOf, TheStepsScalarsAreOneSmallAllReduce) {
  for (const Strategy strategy : all_strategies()) {
    const Traced t = trace_last_step(run_of(GetParam(), strategy));
    const auto n = static_cast<std::size_t>(GetParam());
    std::vector<std::size_t> bytes;
    for (const trace::Record& record : t.records.front()) {
      if (record.kind == trace::Kind::collective && record.unit == "step") {
        bytes.push_back(record.bytes);
      }
    }
    EXPECT_EQ(bytes, (std::vector<std::size_t>{2 * (n - 1) * (n + 1) * 8 / n}));
  }
}

TEST_P(TrafficOf, NoCollectiveRunsOnTheSubmittingThread) {
  for (const Strategy strategy : all_strategies()) {
    ToyRun run = run_of(GetParam(), strategy);
    run.options.shard_group = half_of(GetParam(), strategy);
    const Traced t = trace_last_step(run);
    for (std::size_t rank = 0; rank < t.records.size(); ++rank) {
      int collectives = 0;
      for (const trace::Record& record : t.records[rank]) {
        if (record.kind != trace::Kind::collective) { continue; }
        ++collectives;
        EXPECT_NE(record.thread, t.submitters[rank]) << record.what << " " << record.unit;
      }
      EXPECT_GT(collectives, 0);
    }
  }
}

using Events = std::vector<std::string>;

TEST(EventsOfAStep, ZeroThreeGathersOneAheadAndReducesAsEachBackwardEnds) {
  ToyRun run = run_of(2, Strategy::zero3);
  run.toy.blocks = 2;
  run.toy.tied_head = false;
  EXPECT_EQ(issued(trace_last_step(run).records.front()),
            (Events{"gather root",     "gather block.0",   "forward root",     //
                    "gather block.1",  "forward block.0",  "reshard block.0",  //
                    "forward block.1", "reshard block.1",                      //
                    "gather block.1",  "forward root",                         //
                    "backward root",                                           //
                    "gather block.0",  "backward block.1", "reshard block.1",
                    "reduce block.1",  "backward block.0", "reshard block.0",
                    "reduce block.0",                                      //
                    "backward root",   "reshard root",     "reduce root",  //
                    "update"}));
}

TEST(EventsOfAStep, TheFirstStepGathersWithoutPrefetchUnlessTheOrderWasDeclared) {
  ToyRun run = run_of(2, Strategy::zero3);
  run.toy.blocks = 2;
  run.toy.tied_head = false;
  run.steps = 1;
  const Events undeclared = issued(trace_last_step(run).records.front());
  EXPECT_EQ((Events{undeclared.begin(), undeclared.begin() + 5}),
            (Events{"gather root", "forward root", "gather block.0", "forward block.0",
                    "reshard block.0"}));
  run.toy.declared_order = true;
  const Events declared = issued(trace_last_step(run).records.front());
  EXPECT_EQ((Events{declared.begin(), declared.begin() + 3}),
            (Events{"gather root", "gather block.0", "forward root"}));
}

// Each reduction is a reduce-scatter within a group, then an all-reduce across groups.
TEST(EventsOfAStep, HybridIssuesWhatZeroThreeIssues) {
  ToyRun run = run_of(4, Strategy::zero3);
  const Events zero3 = issued(trace_last_step(run).records.front());
  run.options.strategy = Strategy::hybrid;
  run.options.shard_group = 2;
  const Traced hybrid = trace_last_step(run);
  EXPECT_EQ(issued(hybrid.records.front()), zero3);
  Events reductions;
  for (const trace::Record& record : hybrid.records.front()) {
    const bool reduces = record.kind == trace::Kind::collective && record.what != "all_gather";
    if (reduces) { reductions.push_back(record.what + " " + record.unit); }
  }
  EXPECT_EQ(reductions,
            (Events{"reduce_scatter reduce head", "all_reduce reduce head across groups",
                    "reduce_scatter reduce block.2", "all_reduce reduce block.2 across groups",
                    "reduce_scatter reduce block.1", "all_reduce reduce block.1 across groups",
                    "reduce_scatter reduce block.0", "all_reduce reduce block.0 across groups",
                    "reduce_scatter reduce root", "all_reduce reduce root across groups",
                    "all_reduce step"}));
}

TEST(EventsOfAStep, ZeroTwoGathersParametersAfterTheUpdate) {
  ToyRun run = run_of(2, Strategy::zero2);
  run.toy.blocks = 1;
  run.toy.tied_head = false;
  EXPECT_EQ(issued(trace_last_step(run).records.front()),
            (Events{"forward root", "forward block.0", "forward root",      //
                    "backward root", "backward block.0", "reduce block.0",  //
                    "backward root", "reduce root",                         //
                    "update", "gather root", "gather block.0"}));
}

TEST(EventsOfAStep, DdpReducesDuringBackwardAndGathersNothing) {
  ToyRun run = run_of(2, Strategy::ddp);
  run.toy.blocks = 1;
  run.toy.tied_head = false;
  EXPECT_EQ(issued(trace_last_step(run).records.front()),
            (Events{"forward root", "forward block.0", "forward root",      //
                    "backward root", "backward block.0", "reduce block.0",  //
                    "backward root", "reduce root", "update"}));
}

TEST(EventsOfAStep, DataParallelCopiesTheModelOutFirst) {
  ToyRun run = run_of(2, Strategy::dp);
  run.toy.blocks = 1;
  run.toy.tied_head = false;
  EXPECT_EQ(issued(trace_last_step(run).records.front()),
            (Events{"broadcast root", "broadcast block.0",                  //
                    "forward root", "forward block.0", "forward root",      //
                    "backward root", "backward block.0", "reduce block.0",  //
                    "backward root", "reduce root", "update"}));
}

}  // namespace
}  // namespace tessera::test::traffic_test
