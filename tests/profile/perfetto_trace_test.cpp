#include "tessera/profile/perfetto_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "profile/hand_records.hpp"
#include "tessera/base/error.hpp"

namespace tessera::perfetto_trace_test {
namespace {

using Json = nlohmann::json;
using test::span;
using test::two_steps;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

std::vector<Json> events_of(const std::vector<RankTrace>& ranks) {
  return Json::parse(perfetto_trace(ranks)).at("traceEvents").get<std::vector<Json>>();
}

std::vector<Json> of_kind(const std::vector<Json>& events, const std::string& phase) {
  std::vector<Json> chosen;
  std::copy_if(events.begin(), events.end(), std::back_inserter(chosen),
               [&](const Json& event) { return event.at("ph") == phase; });
  return chosen;
}

/// Thread names of one rank, by number.
std::map<int, std::string> threads_of(const std::vector<Json>& events, int rank) {
  std::map<int, std::string> names;
  for (const Json& event : of_kind(events, "M")) {
    if (event.at("pid") == rank && event.at("name") == "thread_name") {
      names[event.at("tid")] = event.at("args").at("name");
    }
  }
  return names;
}

TEST(PerfettoTrace, EveryRankIsAProcessWithItsStreams) {
  const auto events = events_of({{0, two_steps()}, {3, two_steps()}});
  std::map<int, std::string> processes;
  for (const Json& event : of_kind(events, "M")) {
    if (event.at("name") == "process_name") {
      processes[event.at("pid")] = event.at("args").at("name");
    }
  }
  EXPECT_THAT(processes, ElementsAre(Pair(0, "rank 0"), Pair(3, "rank 3")));
  for (const int rank : {0, 3}) {
    EXPECT_THAT(threads_of(events, rank), ElementsAre(Pair(1, "issued"), Pair(10, "compute"),
                                                      Pair(20, "gather"), Pair(30, "reduce")));
  }
}

TEST(PerfettoTrace, SpansHaveTheirThreadTimeAndArguments) {
  const auto spans = of_kind(events_of({{2, two_steps()}}), "X");
  ASSERT_EQ(spans.size(), 10U);
  // Microseconds since the first record, at 1 ms.
  EXPECT_EQ(spans[0], Json::parse(R"({"name": "forward fc", "cat": "forward", "ph": "X", "pid": 2,
      "tid": 10, "ts": 1005.0, "dur": 4.0, "args": {"unit": "fc", "step": 1}})"));
  EXPECT_EQ(spans[6], Json::parse(R"({"name": "all_gather fc", "cat": "all_gather", "ph": "X",
      "pid": 2, "tid": 20, "ts": 1000.6, "dur": 4.3, "args": {"unit": "fc", "sent_bytes": 750}})"));
}

TEST(PerfettoTrace, MemoryIsACounterInAllAndByCategory) {
  const auto counters = of_kind(events_of({{0, two_steps()}}), "C");
  ASSERT_EQ(counters.size(), 10U);  // five changes, in total and by category
  EXPECT_EQ(counters[0], Json::parse(R"({"name": "memory in use", "ph": "C", "pid": 0, "ts": 0.0,
      "args": {"bytes": 1000}})"));
  EXPECT_EQ(counters[3], Json::parse(R"({"name": "in use by category", "ph": "C", "pid": 0,
      "ts": 1000.0, "args": {"parameters": 1000, "gather": 500}})"));
  EXPECT_EQ(counters[4].at("args").at("bytes"), 1000);
}

TEST(PerfettoTrace, IssuedCallsAreInstants) {
  const auto instants = of_kind(events_of({{0, two_steps()}}), "i");
  ASSERT_EQ(instants.size(), 10U);
  EXPECT_EQ(instants[0], Json::parse(R"({"name": "gather fc", "cat": "issue", "ph": "i", "s": "t",
      "pid": 0, "tid": 1, "ts": 1000.5, "args": {"step": 1}})"));
}

// Viewers require that complete events of a thread do not overlap unless they nest.
TEST(PerfettoTrace, CrossingSpansGetTheirOwnThreads) {
  const std::vector<trace::Record> records = {
      span("compute", "forward", "outer", 0, 0, 100, 500),
      span("compute", "forward", "inner", 0, 0, 100, 300),
      span("compute", "forward", "next", 0, 0, 300, 500),
      span("compute", "forward", "crossing", 0, 0, 400, 600),
      span("compute", "forward", "after", 0, 0, 600, 700),
  };
  const auto events = events_of({{0, records}});
  std::map<std::string, int> thread_of;
  for (const Json& event : of_kind(events, "X")) {
    thread_of[event.at("args").at("unit")] = event.at("tid");
  }
  EXPECT_THAT(thread_of,
              UnorderedElementsAre(Pair("outer", 10), Pair("inner", 10), Pair("next", 10),
                                   Pair("crossing", 11), Pair("after", 10)));
  EXPECT_EQ(threads_of(events, 0).at(11), "compute (2)");
}

TEST(PerfettoTrace, NothingRecordedIsAnEmptyTrace) {
  EXPECT_TRUE(events_of({}).empty());
  EXPECT_TRUE(of_kind(events_of({{0, {}}}), "X").empty());
}

TEST(PerfettoTrace, NamesThatAreNotUtf8AreReplaced) {
  const auto events = events_of({{0, {span("compute", "forward", "\xff", 0, 0, 1, 2)}}});
  EXPECT_EQ(of_kind(events, "X").at(0).at("name"), "forward \xEF\xBF\xBD");
}

TEST(PerfettoTrace, RefusesARankTwice) {
  try {
    (void)perfetto_trace({{1, two_steps()}, {1, two_steps()}});
    FAIL() << "not refused";
  } catch (const ContractError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 appears twice"));
  }
}

}  // namespace
}  // namespace tessera::perfetto_trace_test
