#include "tessera/trace/recorder.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::trace::recorder_test {
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

Record memory(Kind kind, std::string category, std::string unit, std::size_t bytes) {
  Record record;
  record.kind = kind;
  record.what = std::move(category);
  record.unit = std::move(unit);
  record.bytes = bytes;
  return record;
}

std::vector<std::string> names(const Recorder& recorder) {
  std::vector<std::string> all;
  for (const Record& record : recorder.records()) { all.push_back(record.what); }
  return all;
}

TEST(Recorder, KeepsTheLastStepsThatHaveEndedAndTheOneUnderWay) {
  Recorder recorder;
  recorder.keep_last(2);
  const auto step = [&](const std::string& what) {
    recorder.add(named(what + "1"));
    recorder.add(named(what + "2"));
    recorder.end_step();
  };
  using Names = std::vector<std::string>;
  step("a");
  step("b");
  EXPECT_EQ(names(recorder), (Names{"a1", "a2", "b1", "b2"}));
  step("c");
  EXPECT_EQ(names(recorder), (Names{"b1", "b2", "c1", "c2"}));
  recorder.add(named("d1"));
  EXPECT_EQ(names(recorder), (Names{"b1", "b2", "c1", "c2", "d1"}));
  recorder.keep_last(1);
  recorder.end_step();
  EXPECT_EQ(names(recorder), Names{"d1"});
  recorder.end_step();  // a step without records
  EXPECT_EQ(names(recorder), Names{});
  recorder.keep_last(0);
  step("e");
  step("f");
  EXPECT_EQ(names(recorder), (Names{"e1", "e2", "f1", "f2"}));
}

TEST(Recorder, ClearingBetweenStepsForgetsWhereTheyEnded) {
  Recorder recorder;
  recorder.keep_last(1);
  recorder.add(named("a"));
  recorder.end_step();
  recorder.add(named("b"));
  recorder.clear();
  recorder.add(named("c"));
  recorder.end_step();
  EXPECT_EQ(names(recorder), std::vector<std::string>{"c"});
}

TEST(Recorder, ThatHasStoppedDropsNothingMore) {
  Recorder recorder;
  recorder.keep_last(1);
  recorder.add(named("a"));
  recorder.stop();
  for (int step = 0; step < 3; ++step) { recorder.end_step(); }
  EXPECT_EQ(names(recorder), std::vector<std::string>{"a"});
}

TEST(Recorder, KeepsTheTotalOfDroppedStepsSoThatRecordsSum) {
  Recorder recorder;
  recorder.keep_last(1);
  recorder.add(memory(Kind::allocate, "gather", "slots", 60));
  recorder.add(memory(Kind::unuse, "gather", "slots", 60));
  recorder.add(memory(Kind::allocate, "workspace", "passing", 5));
  recorder.add(memory(Kind::use, "gather", "h.0", 30));
  recorder.add(memory(Kind::unuse, "gather", "h.0", 30));
  recorder.add(memory(Kind::release, "workspace", "passing", 5));
  recorder.add(memory(Kind::use, "gather", "h.1", 30));  // ends in a later step
  recorder.end_step();
  recorder.add(memory(Kind::unuse, "gather", "h.1", 30));
  recorder.add(memory(Kind::use, "gather", "h.0", 20));
  recorder.end_step();
  const auto kinds_and_units = [&] {
    std::vector<std::pair<Kind, std::string>> all;
    for (const Record& record : recorder.records()) { all.emplace_back(record.kind, record.unit); }
    return all;
  };
  using Records = std::vector<std::pair<Kind, std::string>>;
  EXPECT_EQ(kinds_and_units(), (Records{{Kind::allocate, "slots"},
                                        {Kind::unuse, "slots"},
                                        {Kind::use, "h.1"},
                                        {Kind::unuse, "h.1"},
                                        {Kind::use, "h.0"}}));
  recorder.add(memory(Kind::unuse, "gather", "h.0", 20));
  recorder.add(memory(Kind::use, "gather", "slots", 60));
  recorder.add(memory(Kind::release, "gather", "slots", 60));
  for (int step = 0; step < 2; ++step) { recorder.end_step(); }
  EXPECT_EQ(kinds_and_units(), Records{}) << "all has been given back";
}

TEST(Recorder, TakesRecordsFromManyThreadsSeparately) {
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
}  // namespace tessera::trace::recorder_test
