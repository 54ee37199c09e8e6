#include "tessera/profile/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "profile/hand_records.hpp"
#include "tessera/base/error.hpp"

namespace tessera::timeline_test {
namespace {

using test::record;
using test::two_steps;
using testing::ElementsAre;
using testing::HasSubstr;
using trace::Kind;

CategoryBytes holding(std::size_t parameters, std::size_t gathered) {
  CategoryBytes bytes;
  bytes[Category::parameters] = parameters;
  bytes[Category::gather] = gathered;
  return bytes;
}

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const ContractError& error) { return error.what(); }
  return "not refused";
}

TEST(Timeline, MatchesTheStepsRecords) {
  const StepTimeline timeline = step_timeline(two_steps(), 2);
  EXPECT_EQ(timeline.step, 2);
  EXPECT_EQ(timeline.duration_ns, 40'000);  // the last step ends with its update
  EXPECT_EQ(timeline.peak_bytes, 1500U);
  EXPECT_THAT(timeline.points,
              ElementsAre(TimelinePoint{0, "forward", "fc", holding(1000, 500)},
                          TimelinePoint{10'000, "backward", "fc", holding(1000, 500)},
                          TimelinePoint{20'000, "backward", "fc", holding(1000, 0)},
                          TimelinePoint{30'000, "update", "", holding(1000, 0)}));
  EXPECT_THAT(timeline.spans,
              ElementsAre(TimelineSpan{600, 4'900, "gather", "all_gather", "fc", 750},
                          TimelineSpan{5'000, 9'000, "compute", "forward", "fc", 0},
                          TimelineSpan{10'000, 21'000, "compute", "backward", "fc", 0},
                          TimelineSpan{22'000, 29'000, "reduce", "reduce_scatter", "fc", 750},
                          TimelineSpan{30'000, 40'000, "compute", "update", "", 0}));
  EXPECT_EQ(timeline.points_recorded, 4U);
  EXPECT_EQ(timeline.spans_recorded, 5U);
}

TEST(Timeline, AStepLastsUntilTheNextBegins) {
  const StepTimeline timeline = step_timeline(two_steps(), 1);
  EXPECT_EQ(timeline.duration_ns, 100'000);
  EXPECT_EQ(timeline.points.front(), (TimelinePoint{0, "forward", "fc", holding(1000, 500)}));
  EXPECT_EQ(timeline.points.back(), (TimelinePoint{30'000, "update", "", holding(1000, 0)}));
  EXPECT_EQ(timeline.spans.size(), 5U);
}

// The device lags behind its host: spans have the device's time, instants the host's.
TEST(Timeline, ALaggingDeviceHasTheSameTimeline) {
  for (const std::int64_t step : {1, 2}) {
    auto records = two_steps();
    for (trace::Record& record : records) {
      if (record.begin_ns == record.end_ns) { continue; }
      record.begin_ns += 7'000'000;
      record.end_ns += 7'000'000;
    }
    EXPECT_EQ(step_timeline(records, step), step_timeline(two_steps(), step));
  }
}

// The host enqueues both steps at once.
TEST(Timeline, AStepThatIsEnqueuedAheadBeginsWhenTheOneBeforeHasEnded) {
  auto records = two_steps();
  std::int64_t host = 2'000'000;
  for (trace::Record& record : records) {
    if (record.begin_ns != record.end_ns || record.phase == "setup") { continue; }
    record.begin_ns = record.end_ns = ++host;
  }
  const StepTimeline first = step_timeline(records, 1);
  EXPECT_THAT(first.points, ElementsAre(testing::Field(&TimelinePoint::phase, "forward"),
                                        testing::Field(&TimelinePoint::phase, "backward"),
                                        testing::Field(&TimelinePoint::phase, "backward"),
                                        testing::Field(&TimelinePoint::phase, "update")));
  const StepTimeline second = step_timeline(records, 2);
  EXPECT_EQ(second.duration_ns, 100'000);  // from the end of the first step's update
  EXPECT_EQ(second.spans.size(), 5U);
  EXPECT_EQ(second.points[0].in_use, holding(1000, 500));
  EXPECT_EQ(second.points[1].phase, "backward");
  EXPECT_EQ(second.points[1].at_ns, 70'000);
}

TEST(Timeline, TheLastStepLastsUntilItsCollectivesEnd) {
  auto records = two_steps();
  // zero1's gather follows the update, which does not wait for it.
  records.push_back(test::span("gather", "all_gather", "fc", 8, 0, 2'139'000, 2'150'000));
  const StepTimeline timeline = step_timeline(records, 2);
  EXPECT_EQ(timeline.duration_ns, 50'000);
  EXPECT_EQ(timeline.spans.back(), (TimelineSpan{39'000, 50'000, "gather", "all_gather", "fc", 8}));
}

TEST(Timeline, ExcludesMemoryFreedAfterTheLastStep) {
  auto records = two_steps();
  records.push_back(
      record(Kind::release, "parameters", "shards", 1000, 1, 9'000'000, "update", ""));
  EXPECT_EQ(step_timeline(records, 2), step_timeline(two_steps(), 2));
  EXPECT_THAT(refusal([&] { (void)step_timeline(records, 3); }), HasSubstr("no records of step 3"));
}

// An allocation counts as in use in its first record, and as unused in the next: it never was in
// use.
TEST(Timeline, SplitMemoryIsNotInUseBetweenItsTwoRecords) {
  auto records = two_steps();
  const std::vector<trace::Record> ring = {
      record(Kind::allocate, "reduce", "ring", 7000, 0, 2'011'000, "backward", "fc"),
      record(Kind::unuse, "reduce", "ring", 7000, 0, 2'011'001, "backward", "fc"),
      record(Kind::use, "reduce", "ring", 7000, 0, 2'011'002, "backward", "fc"),
      record(Kind::release, "reduce", "ring", 7000, 0, 2'011'003, "backward", "fc"),
  };
  records.insert(records.end(), ring.begin(), ring.end());
  EXPECT_EQ(step_timeline(records, 1), step_timeline(two_steps(), 1));
}

TEST(Timeline, SpansAreCutWhereTheStepEnds) {
  auto records = two_steps();
  // Sent at the end of the first step, still in transit in the second.
  records.push_back(test::span("gather", "all_gather", "late", 8, 0, 2'090'000, 2'103'000));
  EXPECT_EQ(step_timeline(records, 1).spans.back(),
            (TimelineSpan{90'000, 100'000, "gather", "all_gather", "late", 8}));
  EXPECT_EQ(step_timeline(records, 2).spans.front(),
            (TimelineSpan{0, 3'000, "gather", "all_gather", "late", 8}));
}

TEST(Timeline, RefusesAStepThatWasNotRecorded) {
  EXPECT_THAT(refusal([] { (void)step_timeline(two_steps(), 3); }),
              HasSubstr("no records of step 3"));
  EXPECT_THAT(refusal([] { (void)step_timeline({}, 1); }), HasSubstr("no records of step 1"));
}

TEST(Timeline, RefusesTruncatedRecords) {
  auto records = two_steps();
  records.erase(records.begin() + 3);  // the slot's first use
  const std::string text = refusal([&] { (void)step_timeline(records, 1); });
  EXPECT_THAT(text, HasSubstr("release 500 bytes of gather (fc), but 0 are in use"));
}

StepTimeline sawtooth(std::size_t points) {
  StepTimeline timeline;
  timeline.duration_ns = static_cast<std::int64_t>(points) * 10;
  for (std::size_t i = 0; i < points; ++i) {
    const auto begin = static_cast<std::int64_t>(i) * 10;
    timeline.points.push_back({begin, "forward", "fc", holding(i == points / 3 ? 9999 : i % 7, 0)});
    timeline.spans.push_back(
        {begin, begin + static_cast<std::int64_t>(i % 100), "compute", "", "", 0});
  }
  timeline.peak_bytes = 9999;
  timeline.points_recorded = points;
  timeline.spans_recorded = points;
  return timeline;
}

std::size_t highest(const StepTimeline& timeline) {
  std::size_t most = 0;
  for (const TimelinePoint& point : timeline.points) {
    most = std::max(most, point.in_use.total());
  }
  return most;
}

TEST(Timeline, ThinnedItKeepsThePeakAndTheOrder) {
  for (const std::size_t most : {4U, 5U, 100U, 999U}) {
    const StepTimeline thin = thinned(sawtooth(1000), most);
    EXPECT_LE(thin.points.size(), most);
    EXPECT_GE(thin.points.size(), most / 2);
    EXPECT_EQ(highest(thin), 9999U);
    EXPECT_EQ(thin.points.front().at_ns, 0);
    EXPECT_TRUE(std::is_sorted(thin.points.begin(), thin.points.end(),
                               [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; }));
    EXPECT_EQ(thin.points_recorded, 1000U);
    EXPECT_EQ(thin.spans.size(), most);
    EXPECT_EQ(thin.spans_recorded, 1000U);
  }
}

TEST(Timeline, ThinnedItKeepsTheLongestSpans) {
  const StepTimeline thin = thinned(sawtooth(1000), 10);
  ASSERT_EQ(thin.spans.size(), 10U);  // the ten longest spans have length 99
  for (const TimelineSpan& span : thin.spans) { EXPECT_EQ(span.end_ns - span.begin_ns, 99); }
  EXPECT_TRUE(std::is_sorted(thin.spans.begin(), thin.spans.end(),
                             [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; }));
}

TEST(Timeline, FewPointsAreNotThinned) {
  const StepTimeline timeline = step_timeline(two_steps(), 1);
  EXPECT_EQ(thinned(timeline, 5), timeline);
  EXPECT_THAT(refusal([&] { (void)thinned(timeline, 3); }), HasSubstr("at least 4 points"));
}

TEST(Timeline, JsonIsTheReportsElement) {
  const auto json =
      nlohmann::ordered_json::parse(timeline_json(step_timeline(two_steps(), 2), "zero3", 1));
  EXPECT_EQ(json, nlohmann::ordered_json::parse(R"({
    "strategy": "zero3", "rank": 1, "step": 2, "duration_us": 40.0, "peak_bytes": 1500,
    "categories": ["parameters", "gather"],
    "points": [[0.0, "forward", "fc", [1000, 500]], [10.0, "backward", "fc", [1000, 500]],
               [20.0, "backward", "fc", [1000, 0]], [30.0, "update", "", [1000, 0]]],
    "spans": [[0.6, 4.9, "gather", "all_gather", "fc", 750], [5.0, 9.0, "compute", "forward", "fc"],
              [10.0, 21.0, "compute", "backward", "fc"],
              [22.0, 29.0, "reduce", "reduce_scatter", "fc", 750],
              [30.0, 40.0, "compute", "update", ""]],
    "points_recorded": 4, "spans_recorded": 5})"));
}

}  // namespace
}  // namespace tessera::timeline_test
