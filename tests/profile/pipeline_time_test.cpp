// The simulator on logs of ranks along pipe: what it says of a schedule is what playing it says.
#include <gtest/gtest.h>

#include "profile/hand_machine.hpp"
#include "tessera/base/error.hpp"
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
constexpr int kSend = 1;
constexpr int kReceive = 2;
constexpr int kSteps = 2;

/// Where the data of `action` go, or come from; none at the ends of the pipeline.
std::optional<int> other_stage(const Schedule& schedule, const Action& action, int towards) {
  const bool forward = action.work == Work::forward;
  const int stage = action.stage + (forward ? towards : -towards);
  if (action.work == Work::backward_weight || stage < 0 || stage >= schedule.stages()) {
    return {};
  }
  return schedule.rank_of_stage[static_cast<std::size_t>(stage)];
}

/// Enqueues `rank`'s actions as a pipeline does: what arrives is waited for, what leaves waits for
/// the action, and neither waits for a later one. Outputs and gradients travel apart.
void log_step(WorkLog& log, const Schedule& schedule, int rank, double transfer) {
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
    const int back = action.work == Work::forward ? 0 : 1;
    const auto group = static_cast<std::size_t>(back);
    if (const auto from = other_stage(schedule, action, -1)) {
      log.batch(kReceive + 2 * back, {"receive", group, {{"receive", transfer, *from}}});
      log.wait(kCompute, log.record(kReceive + 2 * back));
    }
    log.kernel(kCompute, kernel_of(action.work == Work::backward ? 2 : 1));
    if (const auto to = other_stage(schedule, action, 1)) {
      log.wait(kSend + 2 * back, log.record(kCompute));
      log.batch(kSend + 2 * back, {"send", group, {{"send", transfer, *to}}});
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
    for (const char* name : {"compute", "send", "receive", "send back", "receive back"}) {
      log.add_stream(name);
    }
    std::vector<int> members;
    for (int member = 0; member < ranks; ++member) { members.push_back(member); }
    log.add_group(members);
    log.add_group(members);
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
      const pipeline::Timeline played = pipeline::play(schedule, {.transfer = transfer});
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
      log.batch(kSend, test::gather_of(stage == 0 ? 1 : 3));
      log.wait(kCompute, log.record(kSend));
      log.end_step();
    }
  }
  const StepTime time =
      step_time(std::vector<RankWork>{{&logs[0], 2, 0}, {&logs[1], 2, 2}}, plain_machine());
  EXPECT_DOUBLE_EQ(time.ranks[0].shares.bandwidth, 1);
  EXPECT_DOUBLE_EQ(time.ranks[1].shares.bandwidth, 3);
}

TEST(PipelineTime, WhatNobodySendsIsWaitedForForEver) {
  WorkLog log;
  log.add_stream("compute");
  log.add_group({0, 1});
  log.batch(kCompute, {.label = "receive", .entries = {{"receive", 1, 1}}});
  log.end_step();
  EXPECT_THROW((void)step_time(std::vector<RankWork>{{&log, 1, 0}}, plain_machine()),
               ContractError);
}

}  // namespace
}  // namespace tessera::pipeline_time_test
