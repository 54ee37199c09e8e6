// The simulator on logs of ranks along pipe agrees with the schedule's timeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "profile/hand_machine.hpp"
#include "tessera/pipeline/timeline.hpp"
#include "tessera/profile/step_time.hpp"

namespace tessera::pipeline_time_test {
namespace {

using pipeline::Action;
using pipeline::Schedule;
using pipeline::Work;
using test::kernel_of;
using test::plain_machine;
using trace::WorkLog;

constexpr int kCompute = 0;
constexpr int kGather = 1;
constexpr int kSteps = 2;

/// The rank of the stage before (-1) or after (1) that of `action` in the direction of its data;
/// none at the ends of the pipeline.
std::optional<int> neighbour(const Schedule& schedule, const Action& action, int towards) {
  const int stage = action.stage + (action.work == Work::forward ? towards : -towards);
  if (stage < 0 || stage >= schedule.stages()) { return {}; }
  return schedule.rank_of_stage[static_cast<std::size_t>(stage)];
}

/// One direction between two ranks: a group of two with a stream.
struct Link {
  int from = 0;
  int to = 0;
  Work work = Work::forward;

  friend bool operator==(const Link&, const Link&) = default;
};

std::vector<Link> links_of(const Schedule& schedule) {
  std::vector<Link> links;
  const auto ranks = static_cast<int>(schedule.ranks.size());
  for (const Work work : {Work::forward, Work::backward}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const int next = (rank + 1) % ranks;
      links.push_back(work == Work::forward ? Link{rank, next, work} : Link{next, rank, work});
    }
  }
  return links;
}

/// Enqueues `rank`'s actions as a pipeline does: an action waits for its input, and a send waits
/// for the action.
void log_step(WorkLog& log, const Schedule& schedule, int rank, double transfer) {
  const std::vector<Link> links = links_of(schedule);
  const auto send = [&](const Link& link) {
    const auto number = std::ranges::find(links, link) - links.begin();
    log.batch(static_cast<int>(number) + 1,
              {"hand on", static_cast<std::size_t>(number), {{"broadcast", transfer}}});
    return static_cast<int>(number) + 1;
  };
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
    if (const auto from = neighbour(schedule, action, -1)) {
      log.wait(kCompute, log.record(send({*from, rank, action.work})));
    }
    log.kernel(kCompute, kernel_of(action.work == Work::backward ? 2 : 1));
    if (const auto to = neighbour(schedule, action, 1)) {
      const Link link{rank, *to, action.work};
      const auto number = static_cast<int>(std::ranges::find(links, link) - links.begin());
      log.wait(number + 1, log.record(kCompute));
      send(link);
    }
  }
  log.end_step();
}

StepTime time_of(const Schedule& schedule, double transfer) {
  const auto ranks = static_cast<int>(schedule.ranks.size());
  std::vector<WorkLog> logs(schedule.ranks.size());
  std::vector<RankWork> work;
  for (int rank = 0; rank < ranks; ++rank) {
    WorkLog& log = logs[static_cast<std::size_t>(rank)];
    log.add_stream("compute");
    for (const Link& link : links_of(schedule)) {
      log.add_stream("link");
      log.add_group({std::min(link.from, link.to), std::max(link.from, link.to)});
    }
    log.enter("step");
    for (int step = 0; step < kSteps; ++step) { log_step(log, schedule, rank, transfer); }
    work.push_back({&log, 1, rank});
  }
  return step_time(work, plain_machine());
}

TEST(PipelineTime, IsThatOfTheSchedulePlayed) {
  for (const Schedule& schedule :
       {pipeline::gpipe(2, 4), pipeline::gpipe(4, 6), pipeline::one_forward_one_backward(3, 5),
        pipeline::one_forward_one_backward(4, 8), pipeline::interleaved(2, 2, 4)}) {
    for (const double transfer : {0.0, 0.25}) {
      const pipeline::Timeline played =
          pipeline::play(schedule, {.stages = {}, .transfer = transfer});
      const StepTime time = time_of(schedule, transfer);
      EXPECT_NEAR(time.seconds, played.length, 1e-9) << schedule.name << " " << transfer;
      ASSERT_EQ(time.ranks.size(), schedule.ranks.size());
      const double busy = time.ranks.front().shares.computing;
      EXPECT_NEAR(1 - busy / time.seconds, played.idle(0), 1e-9) << schedule.name;
    }
  }
}

TEST(PipelineTime, RanksOfOneStageMeetWithoutTheOthers) {
  std::vector<WorkLog> logs(2);
  for (int stage = 0; stage < 2; ++stage) {
    WorkLog& log = logs[static_cast<std::size_t>(stage)];
    log.add_stream("compute");
    log.add_stream("gather");
    log.add_group({2 * stage, 2 * stage + 1});
    for (int step = 0; step < kSteps; ++step) {
      log.batch(kGather, test::gather_of(stage == 0 ? 1 : 3));
      log.wait(kCompute, log.record(kGather));
      log.end_step();
    }
  }
  const StepTime time =
      step_time(std::vector<RankWork>{{&logs[0], 2, 0}, {&logs[1], 2, 2}}, plain_machine());
  EXPECT_DOUBLE_EQ(time.ranks[0].shares.bandwidth, 1);
  EXPECT_DOUBLE_EQ(time.ranks[1].shares.bandwidth, 3);
}

}  // namespace
}  // namespace tessera::pipeline_time_test
