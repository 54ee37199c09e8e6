#include "tessera/trace/recorder.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tessera::trace {
namespace {

Record named(std::string what) {
  Record record;
  record.what = std::move(what);
  return record;
}

TEST(Recorder, KeepsRecordsInTheOrderTheyWereAdded) {
  Recorder recorder;
  for (const char* what : {"gather", "reshard", "reduce"}) { recorder.add(named(what)); }
  const std::vector<Record> records = recorder.records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].what, "gather");
  EXPECT_EQ(records[1].what, "reshard");
  EXPECT_EQ(records[2].what, "reduce");
}

TEST(Recorder, KeepsEveryFieldThatWasGiven) {
  Recorder recorder;
  recorder.add({Kind::collective, "all_gather", "h.0", 4096, 7, 0, 100, 250});
  const Record record = recorder.records().at(0);
  EXPECT_EQ(record.kind, Kind::collective);
  EXPECT_EQ(record.what, "all_gather");
  EXPECT_EQ(record.unit, "h.0");
  EXPECT_EQ(record.bytes, 4096U);
  EXPECT_EQ(record.step, 7);
  EXPECT_EQ(record.begin_ns, 100);
  EXPECT_EQ(record.end_ns, 250);
  EXPECT_EQ(record.thread, this_thread());
}

TEST(Recorder, FillsTheTimesOfAnInstantWithNow) {
  Recorder recorder;
  const std::int64_t before = now_ns();
  recorder.add(named("gather"));
  const Record record = recorder.records().at(0);
  EXPECT_GE(record.begin_ns, before);
  EXPECT_LE(record.begin_ns, now_ns());
  EXPECT_EQ(record.begin_ns, record.end_ns);
}

TEST(Recorder, EndsASpanWithoutAnEndNow) {
  Recorder recorder;
  Record span = named("forward");
  span.begin_ns = now_ns();
  recorder.add(span);
  const Record record = recorder.records().at(0);
  EXPECT_EQ(record.begin_ns, span.begin_ns);
  EXPECT_GE(record.end_ns, record.begin_ns);
}

TEST(Recorder, AddsNothingOnceStopped) {
  Recorder recorder;
  recorder.add(named("gather"));
  recorder.stop();
  recorder.add(named("reshard"));
  ASSERT_EQ(recorder.records().size(), 1U);
  EXPECT_EQ(recorder.records()[0].what, "gather");
}

TEST(Recorder, ClearForgetsWhatWasRecorded) {
  Recorder recorder;
  recorder.add(named("gather"));
  recorder.clear();
  EXPECT_TRUE(recorder.records().empty());
}

TEST(Recorder, TakesRecordsFromManyThreadsAndTellsThemApart) {
  constexpr int threads = 4;
  constexpr int each = 200;
  Recorder recorder;
  std::latch together{threads};
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&] {
      together.arrive_and_wait();
      for (int i = 0; i < each; ++i) { recorder.add(named("x")); }
    });
  }
  for (std::thread& thread : running) { thread.join(); }
  std::multiset<std::uint64_t> ids;
  for (const Record& record : recorder.records()) { ids.insert(record.thread); }
  ASSERT_EQ(ids.size(), static_cast<std::size_t>(threads * each));
  const std::set<std::uint64_t> distinct(ids.begin(), ids.end());
  EXPECT_EQ(distinct.size(), static_cast<std::size_t>(threads));
  for (const std::uint64_t id : distinct) {
    EXPECT_EQ(ids.count(id), static_cast<std::size_t>(each));
  }
  EXPECT_EQ(distinct.count(this_thread()), 0U);
}

}  // namespace
}  // namespace tessera::trace
