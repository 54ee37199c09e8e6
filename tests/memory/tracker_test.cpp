#include "tessera/memory/tracker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::tracker_test {
namespace {

TEST(Category, EachHasItsOwnName) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kCategories; ++i) {
    names.emplace(to_string(static_cast<Category>(i)));
  }
  EXPECT_EQ(names, (std::set<std::string>{"parameters", "gradients", "optimizer", "gather",
                                          "reduce", "activations", "workspace", "communicator",
                                          "context", "unattributed"}));
}

TEST(MemoryTracker, CountsWhatIsLiveByCategory) {
  MemoryTracker tracker;
  tracker.add(Category::parameters, 100, "a");
  tracker.add(Category::gradients, 50, "b");
  tracker.add(Category::parameters, 10, "c");
  tracker.remove(Category::parameters, 100, "a");
  const MemoryReport report = tracker.report();
  EXPECT_EQ(report.live[Category::parameters], 10U);
  EXPECT_EQ(report.live[Category::gradients], 50U);
  EXPECT_EQ(report.live[Category::optimizer], 0U);
  EXPECT_EQ(report.live.total(), 60U);
}

TEST(MemoryTracker, CountsAllocationsNotReleases) {
  MemoryTracker tracker;
  EXPECT_EQ(tracker.report().allocations, 0U);
  tracker.add(Category::parameters, 1, "a");
  tracker.add(Category::parameters, 1, "b");
  tracker.remove(Category::parameters, 1, "a");
  EXPECT_EQ(tracker.report().allocations, 2U);
}

TEST(MemoryTracker, ThePeakHasTheCompositionOfItsFirstMoment) {
  MemoryTracker tracker;
  tracker.add(Category::parameters, 100, "a");
  tracker.add(Category::gather, 60, "slots");  // 160: the peak
  tracker.remove(Category::gather, 60, "slots");
  tracker.add(Category::reduce, 60, "slots");  // 160 again, of other categories: not the first peak
  tracker.remove(Category::reduce, 60, "slots");
  tracker.add(Category::activations, 20, "x");  // 120
  const MemoryReport report = tracker.report();
  CategoryBytes expected;
  expected[Category::parameters] = 100;
  expected[Category::gather] = 60;
  EXPECT_EQ(report.at_peak, expected);
  EXPECT_EQ(report.peak_bytes, 160U);
  EXPECT_EQ(report.live.total(), 120U);
}

TEST(MemoryTracker, ReportsAllocationsAndReleasesToTheRecorder) {
  trace::Recorder recorder;
  MemoryTracker tracker{&recorder};
  tracker.add(Category::optimizer, 256, "moments");
  tracker.remove(Category::optimizer, 256, "moments");
  const std::vector<trace::Record> records = recorder.records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].kind, trace::Kind::allocate);
  EXPECT_EQ(records[1].kind, trace::Kind::release);
  for (const trace::Record& record : records) {
    EXPECT_EQ(record.what, "optimizer");
    EXPECT_EQ(record.unit, "moments");
    EXPECT_EQ(record.bytes, 256U);
  }
}

TEST(MemoryTracker, RecordsThePhaseAtThePeaks) {
  MemoryTracker tracker;
  tracker.add(Category::parameters, 100, "shards");
  tracker.add(Category::gather, 60, "slots", BufferUse::parts);  // 160 live, 100 in use
  tracker.enter(trace::Phase::backward, "h.2", 4);
  const CountedMemory slot = tracker.occupy(Category::gather, 30, "h.2");  // 130 in use
  tracker.enter(trace::Phase::update, "", 4);
  const MemoryReport report = tracker.report();
  EXPECT_EQ(report.peak_bytes, 160U);
  EXPECT_EQ(report.peak_at, (trace::Moment{trace::Phase::setup, "", 0}));
  EXPECT_EQ(report.most_in_use_bytes, 130U);
  EXPECT_EQ(report.most_in_use[Category::gather], 30U);
  EXPECT_EQ(report.most_in_use_at, (trace::Moment{trace::Phase::backward, "h.2", 4}));
  EXPECT_EQ(report.by_phase[0], (PhaseMemory{160, 100}));
  EXPECT_EQ(report.by_phase[1], (PhaseMemory{0, 0}));
  EXPECT_EQ(report.by_phase[2], (PhaseMemory{160, 130}));
  EXPECT_EQ(report.by_phase[3], (PhaseMemory{160, 130}));
}

TEST(MemoryTracker, CountsRegisteredMemoryWhileItsHandleLives) {
  MemoryTracker tracker;
  {
    CountedMemory first = tracker.register_memory(Category::activations, 40, "mine");
    const CountedMemory moved = std::move(first);
    first = tracker.register_memory(Category::activations, 2, "other");
    EXPECT_EQ(tracker.report().live[Category::activations], 42U);
    first = {};
    EXPECT_EQ(tracker.report().live[Category::activations], 40U);
  }
  EXPECT_EQ(tracker.report().live.total(), 0U);
  EXPECT_EQ(tracker.report().in_use.total(), 0U);
}

TEST(MemoryTracker, RefusesMemoryBeyondTheBudgetAndListsWhatIsHeld) {
  MemoryTracker tracker{nullptr, 100};
  tracker.add(Category::parameters, 60, "shards");
  tracker.enter(trace::Phase::forward, "h.1", 0);
  EXPECT_NO_THROW(tracker.require_room(Category::gather, 40, "slots"));
  EXPECT_THAT([&] { tracker.add(Category::gather, 41, "slots"); },
              testing::ThrowsMessage<OutOfMemory>(
                  testing::AllOf(testing::HasSubstr("slots (gather, 41 B) in forward of h.1"),
                                 testing::HasSubstr("the budget is 100 B"),
                                 testing::HasSubstr("holds 60 B: parameters 60 B"))));
  EXPECT_EQ(tracker.report().live.total(), 60U) << "nothing is counted";
  EXPECT_THROW(tracker.require_room(Category::gather, SIZE_MAX, "slots"), OutOfMemory);
  EXPECT_NO_THROW(tracker.add(Category::gather, 40, "slots"));
}

// A sum that wraps would count a holder of everything as one of nothing.
TEST(MemoryTracker, RefusesSumsThat64BitsCannotCountAndCategoriesThatAreNone) {
  MemoryTracker tracker;
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const CountedMemory held = tracker.register_memory(Category::gradients, 8, "held");
  EXPECT_THROW((void)tracker.register_memory(Category::activations, most, "huge"), OutOfMemory);
  EXPECT_THROW((void)tracker.register_memory(Category::activations, most - 7, "huge"), OutOfMemory);
  EXPECT_EQ(tracker.report().live.total(), 8U);
  {
    const CountedMemory all = tracker.register_memory(Category::activations, most - 8, "all");
    EXPECT_THROW((void)tracker.occupy(Category::activations, 1, "one more"), OutOfMemory);
    EXPECT_EQ(tracker.report().live.total(), most);
  }
  EXPECT_EQ(tracker.report().live.total(), 8U);
  for (const auto none : {static_cast<Category>(kCategories), static_cast<Category>(255)}) {
    EXPECT_THROW((void)tracker.register_memory(none, 8, "none"), ContractError);
  }
}

TEST(MemoryTracker, RecordsCarryPhaseUnitAndStepAndSumToWhatIsInUse) {
  trace::Recorder recorder;
  MemoryTracker tracker{&recorder};
  tracker.enter(trace::Phase::backward, "h.3", 7);
  tracker.add(Category::gather, 60, "slots", BufferUse::parts);
  { const CountedMemory slot = tracker.occupy(Category::gather, 30, "h.3"); }
  tracker.remove(Category::gather, 60, "slots", BufferUse::parts);
  std::int64_t in_use = 0;
  std::vector<std::int64_t> levels;
  for (const trace::Record& record : recorder.records()) {
    EXPECT_EQ(record.phase, "backward");
    EXPECT_EQ(record.during, "h.3");
    EXPECT_EQ(record.step, 7);
    const bool more = record.kind == trace::Kind::allocate || record.kind == trace::Kind::use;
    in_use +=
        more ? static_cast<std::int64_t>(record.bytes) : -static_cast<std::int64_t>(record.bytes);
    levels.push_back(in_use);
  }
  EXPECT_EQ(levels, (std::vector<std::int64_t>{60, 0, 30, 0, 60, 0}));
}

TEST(MemoryTracker, CountsFromManyThreads) {
  MemoryTracker tracker;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        tracker.add(Category::workspace, 3, "x");
        tracker.remove(Category::workspace, 2, "x");
      }
    });
  }
  for (std::thread& thread : threads) { thread.join(); }
  EXPECT_EQ(tracker.report().live[Category::workspace], 2000U);
  EXPECT_EQ(tracker.report().allocations, 2000U);
}

TEST(MemoryTrackerDeathTest, ReleasingMoreThanIsHeldIsABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  MemoryTracker tracker;
  tracker.add(Category::workspace, 3, "x");
  EXPECT_DEATH(tracker.remove(Category::workspace, 4, "x"), "bug in the library");
}

}  // namespace
}  // namespace tessera::tracker_test
