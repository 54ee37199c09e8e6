// Timelines and traces of real recordings.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "support/planned_jobs.hpp"
#include "tessera/profile/perfetto_trace.hpp"
#include "tessera/profile/timeline.hpp"
#include "tessera/world/run.hpp"

namespace tessera::recorded_run_test {
namespace {

using trace::Kind;

struct Recorded {
  std::vector<RankTrace> traces;
  std::vector<MemoryReport> memory;
};

Recorded recorded(const test::PlannedJob& job, const ModelOptions& options, int ranks) {
  Recorded all;
  std::mutex mutex;
  WorldOptions world_options;
  world_options.trace = true;
  const auto body = [&](World& world) {
    job.body(world, options);
    world.quiesce();
    const std::lock_guard lock{mutex};
    all.traces.push_back({world.rank(), world.recorder()->records()});
    all.memory.push_back(world.memory().report());
  };
  run_ranks(ranks, body, world_options);
  return all;
}

std::set<std::string> phases_of(const StepTimeline& timeline) {
  std::set<std::string> phases;
  for (const TimelinePoint& point : timeline.points) { phases.insert(point.phase); }
  return phases;
}

std::size_t spans_of(const StepTimeline& timeline, const std::string& stream) {
  return static_cast<std::size_t>(
      std::count_if(timeline.spans.begin(), timeline.spans.end(),
                    [&](const TimelineSpan& span) { return span.stream == stream; }));
}

class RecordedRun : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, RecordedRun,
                         ::testing::Values(Strategy::dp, Strategy::ddp, Strategy::zero1,
                                           Strategy::zero2, Strategy::zero3),
                         [](const auto& strategy) {
                           return std::string{to_string(strategy.param)};
                         });

TEST_P(RecordedRun, TheTimelinesPeakIsTheTrackersPeakInUse) {
  for (const test::PlannedJob& job : test::planned_jobs()) {
    SCOPED_TRACE(job.name);
    const Recorded run = recorded(job, {.strategy = GetParam()}, 2);
    for (std::size_t r = 0; r < run.traces.size(); ++r) {
      const StepTimeline first = step_timeline(run.traces[r].records, 1);
      const StepTimeline second = step_timeline(run.traces[r].records, 2);
      EXPECT_EQ(std::max(first.peak_bytes, second.peak_bytes), run.memory[r].most_in_use_bytes);
      EXPECT_EQ(phases_of(second), (std::set<std::string>{"backward", "forward", "update"}));
      EXPECT_GT(spans_of(second, "compute"), 2U);
      EXPECT_GT(spans_of(second, "reduce"), 0U);
      EXPECT_EQ(
          spans_of(second, "compute") + spans_of(second, "gather") + spans_of(second, "reduce"),
          second.spans.size());
    }
  }
}

TEST_P(RecordedRun, TheTraceHasEverySpanOfEveryRank) {
  const Recorded run = recorded(test::planned_jobs().front(), {.strategy = GetParam()}, 3);
  const auto events = nlohmann::json::parse(perfetto_trace(run.traces)).at("traceEvents");
  for (const RankTrace& rank : run.traces) {
    const auto spans = std::count_if(rank.records.begin(), rank.records.end(), [](const auto& r) {
      return r.kind == Kind::compute || r.kind == Kind::collective;
    });
    const auto drawn = std::count_if(events.begin(), events.end(), [&](const auto& event) {
      return event.at("ph") == "X" && event.at("pid") == rank.rank;
    });
    EXPECT_EQ(drawn, spans) << "rank " << rank.rank;
  }
}

}  // namespace
}  // namespace tessera::recorded_run_test
