#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/traced_toy.hpp"
#include "tessera/world/run.hpp"

// Compares what each resharding policy sends and holds with docs/resharding.md. The toy has a root,
// three blocks and a head that shares the root's table.
namespace tessera::test::resharding_traffic_test {
namespace {

ToyRun zero3(int ranks) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = 3;
  run.options.strategy = Strategy::zero3;
  return run;
}

class ReshardingTraffic : public ::testing::TestWithParam<int> {
 protected:
  /// Calls and bytes of the all-gathers of a step, equal on all ranks.
  [[nodiscard]] static Count gathers(const Traced& t) {
    const Count first = traffic_of(t.records.front()).at("all_gather");
    for (const auto& records : t.records) {
      EXPECT_EQ(traffic_of(records).at("all_gather"), first);
    }
    return first;
  }
  /// Bytes that one rank sends to all-gather `bytes`.
  [[nodiscard]] static std::size_t part(std::size_t bytes) {
    const auto n = static_cast<std::size_t>(GetParam());
    return bytes * (n - 1) / n;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ReshardingTraffic, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(ReshardingTraffic, KeptFromForwardToBackwardEverythingIsGatheredOnceAMicroBatch) {
  for (const int prefetch : {0, 1, 3}) {
    for (const int accumulate : {1, 2}) {
      ToyRun run = zero3(GetParam());
      run.options.prefetch = prefetch;
      run.options.accumulate = accumulate;
      run.options.reshard = Reshard::after_backward;
      const Traced t = trace_last_step(run);
      EXPECT_EQ(gathers(t), (Count{accumulate * (t.segments_of_blocks + 1),
                                   static_cast<std::size_t>(accumulate) *
                                       part(t.blocks_bytes + t.root_bytes)}));
    }
  }
}

TEST_P(ReshardingTraffic, UnitsThatPersistAreGatheredOnceAStep) {
  for (const int accumulate : {1, 3}) {
    ToyRun run = zero3(GetParam());
    run.options.accumulate = accumulate;
    run.options.persist_elems = 1 << 20;  // all units
    const Traced t = trace_last_step(run);
    EXPECT_EQ(gathers(t), (Count{t.segments_of_blocks + 1, part(t.blocks_bytes + t.root_bytes)}));
    // Blocks (63 elements) and the head's bias, not the root (91).
    run.options.persist_elems = 63;
    const Traced but_root = trace_last_step(run);
    EXPECT_EQ(
        gathers(but_root),
        (Count{t.segments_of_blocks + accumulate,
               part(t.blocks_bytes) + static_cast<std::size_t>(accumulate) * part(t.root_bytes)}));
  }
}

// Bytes held for gathered units. The planner runs the same code, so it gets the same numbers.
std::size_t gather_bytes(const ToyRun& run, std::vector<std::size_t>* units) {
  std::size_t held = 0;
  run_ranks(run.ranks, [&](World& world) {
    ToyModel toy{world, run.options, run.toy};
    if (world.rank() != 0) { return; }
    held = world.memory().report().live[Category::gather];
    units->clear();
    for (std::size_t u = 0; u < toy.model().unit_count(); ++u) {
      std::size_t bytes = 0;
      for (const SegmentLayout& segment : toy.model().layout(toy.model().unit(u)).segments()) {
        bytes += 4 * static_cast<std::size_t>(segment.padded_elems());
      }
      units->push_back(Arena::need(bytes));
    }
  });
  return held;
}

TEST_P(ReshardingTraffic, MemoryIsOneRingAndASlotForEachOtherUnit) {
  std::vector<std::size_t> units;  // root, three blocks, head
  const auto held = [&](const ModelOptions& options) {
    ToyRun run = zero3(GetParam());
    run.options = options;
    run.options.strategy = Strategy::zero3;
    return gather_bytes(run, &units);
  };
  const std::size_t by_default = held({});
  const std::size_t all = std::accumulate(units.begin(), units.end(), std::size_t{0});
  const std::size_t largest = *std::max_element(units.begin() + 1, units.end());
  EXPECT_EQ(by_default, units[0] + 2 * largest);
  EXPECT_EQ(held({.prefetch = 0}), units[0] + largest);
  EXPECT_EQ(held({.prefetch = 0, .tuning = {.prefetch_backward = 2}}), units[0] + 3 * largest);
  EXPECT_EQ(held({.prefetch = 2, .tuning = {.prefetch_backward = 0}}), units[0] + 3 * largest);
  EXPECT_EQ(held({.reshard = Reshard::after_backward}), all);
  EXPECT_EQ(held({.persist_elems = 1 << 20}), all);
  // The head's bias persists: it has its own slot and no longer shares the ring.
  EXPECT_EQ(held({.persist_elems = 13}), units[0] + units[4] + 2 * largest);
}

using Events = std::vector<std::string>;

ToyRun two_blocks(const ModelOptions& options) {
  ToyRun run;
  run.ranks = 2;
  run.steps = 3;
  run.toy.blocks = 2;
  run.toy.tied_head = false;
  run.options = options;
  run.options.strategy = Strategy::zero3;
  return run;
}

TEST(EventsOfResharding, KeptBlocksAreGivenBackAfterTheirBackward) {
  EXPECT_EQ(
      issued(trace_last_step(two_blocks({.reshard = Reshard::after_backward})).records.front()),
      (Events{"gather root", "gather block.0", "forward root",  //
              "gather block.1", "forward block.0",              //
              "forward block.1", "forward root",                //
              "backward root",                                  //
              "backward block.1", "reshard block.1", "reduce block.1", "backward block.0",
              "reshard block.0", "reduce block.0", "backward root", "reshard root", "reduce root",
              "update"}));
}

TEST(EventsOfResharding, UnitsThatPersistAreGivenBackByTheUpdate) {
  EXPECT_EQ(issued(trace_last_step(two_blocks({.persist_elems = 63})).records.front()),
            (Events{"gather root", "gather block.0", "forward root",  //
                    "gather block.1", "forward block.0",              //
                    "forward block.1", "forward root",                //
                    "backward root",                                  //
                    "backward block.1", "reduce block.1",             //
                    "backward block.0", "reduce block.0",             //
                    "backward root", "reshard root", "reduce root", "update", "reshard block.0",
                    "reshard block.1"}));
}

TEST(EventsOfResharding, ForwardAndBackwardPrefetchAsFarAsTheirOwnDepth) {
  const auto gathers_before = [](const ModelOptions& options, const std::string& event) {
    ToyRun run = two_blocks(options);
    run.toy.blocks = 4;
    const Events events = issued(trace_last_step(run).records.front());
    return std::count_if(events.begin(), std::find(events.begin(), events.end(), event),
                         [](const std::string& e) { return e.starts_with("gather block"); });
  };
  EXPECT_EQ(gathers_before({.prefetch = 2, .tuning = {.prefetch_backward = 0}}, "forward root"), 2);
  EXPECT_EQ(gathers_before({.prefetch = 0, .tuning = {.prefetch_backward = 2}}, "forward root"), 0);
  // Four gathers for the forward pass, and those ahead of the backward pass.
  EXPECT_EQ(gathers_before({.prefetch = 2, .tuning = {.prefetch_backward = 0}}, "backward root"),
            4);
  EXPECT_EQ(gathers_before({.prefetch = 0, .tuning = {.prefetch_backward = 2}}, "backward root"),
            6);
  EXPECT_EQ(gathers_before({.prefetch = 2}, "backward root"), 6);
  // Blocks with their own slots are gathered no further ahead than asked, although there is room.
  EXPECT_EQ(gathers_before({.prefetch = 2, .reshard = Reshard::after_backward}, "forward root"), 2);
  EXPECT_EQ(gathers_before({.prefetch = 2, .persist_elems = 63}, "forward root"), 2);
  EXPECT_EQ(gathers_before({.prefetch = 2, .persist_elems = 63}, "forward block.0"), 3);
}

}  // namespace
}  // namespace tessera::test::resharding_traffic_test
