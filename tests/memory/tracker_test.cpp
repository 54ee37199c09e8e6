#include "tessera/memory/tracker.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(Category, EveryOneHasANameOfItsOwn) {
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
  tracker.add(Category::reduce, 60, "slots");  // 160 again, another composition: not the first
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

TEST(MemoryTracker, ResettingThePeakStartsFromWhatIsLive) {
  MemoryTracker tracker;
  tracker.add(Category::parameters, 100, "a");
  tracker.add(Category::gather, 60, "b");
  tracker.remove(Category::gather, 60, "b");
  tracker.reset_peak();
  EXPECT_EQ(tracker.report().peak_bytes, 100U);
  EXPECT_EQ(tracker.report().at_peak, tracker.report().live);
  tracker.add(Category::reduce, 5, "c");
  EXPECT_EQ(tracker.report().peak_bytes, 105U);
  EXPECT_EQ(tracker.report().at_peak[Category::reduce], 5U);
  EXPECT_EQ(tracker.report().allocations, 3U);
}

TEST(MemoryTracker, TellsTheRecorderWhatCameAndWent) {
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

TEST(MemoryTrackerDeathTest, GivingBackMoreThanIsHeldIsABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  MemoryTracker tracker;
  tracker.add(Category::workspace, 3, "x");
  EXPECT_DEATH(tracker.remove(Category::workspace, 4, "x"), "bug in the library");
}

}  // namespace
}  // namespace tessera
