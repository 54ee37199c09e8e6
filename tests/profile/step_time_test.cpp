// The simulator on handmade logs: two ranks of the plain machine, where work takes the seconds that
// it states.
#include "tessera/profile/step_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "profile/hand_machine.hpp"
#include "tessera/base/error.hpp"

namespace tessera::step_time_test {
namespace {

using test::gather_of;
using test::kernel_of;
using test::plain_machine;
using trace::WorkLog;

constexpr int kCompute = 0;
constexpr int kGather = 1;
constexpr int kReduce = 2;

/// A log with three streams, and a group of two ranks of one node.
WorkLog two_ranks() {
  WorkLog log;
  for (const char* name : {"compute", "gather", "reduce"}) { log.add_stream(name); }
  log.add_group({0, 1});
  log.enter("forward");
  return log;
}

/// The time of `steps` steps that `step` logs.
template <class Step>
StepTime time_of(const MachineProfile& machine, const Step& step, int steps = 2) {
  WorkLog log = two_ranks();
  for (int i = 0; i < steps; ++i) {
    step(log);
    log.end_step();
  }
  return step_time(std::vector<RankWork>{{&log, 2}}, machine);
}

/// Makes stream `waits` wait until stream `other` reaches this point.
void join(WorkLog& log, int waits, int other) {
  log.wait(waits, log.record(other));
}

TEST(StepTime, OfOneStreamIsTheSumOfItsKernels) {
  const StepTime time = time_of(plain_machine(), [](WorkLog& log) {
    log.kernel(kCompute, kernel_of(2));
    log.kernel(kCompute, kernel_of(3));
  });
  EXPECT_DOUBLE_EQ(time.seconds, 5);
  EXPECT_DOUBLE_EQ(time.flops, 5);
  EXPECT_DOUBLE_EQ(time.shares.computing, 5);
  EXPECT_DOUBLE_EQ(time.shares.total(), 5);
  EXPECT_EQ(bound_of(time.shares), "compute");
}

TEST(StepTime, AKernelWithoutFlopsTakesTheTimeOfItsBytes) {
  const StepTime time = time_of(plain_machine(), [](WorkLog& log) {
    log.kernel(kCompute, {.name = "fill", .bytes = 0.25, .sizes = {1, 1, 1}});
  });
  EXPECT_DOUBLE_EQ(time.seconds, 0.25);
  EXPECT_DOUBLE_EQ(time.shares.computing + time.shares.memory, 0.25);
}

TEST(StepTime, OnlyEventsMakeStreamsWait) {
  const auto serial = time_of(plain_machine(), [](WorkLog& log) {
    log.batch(kGather, gather_of(4));
    join(log, kCompute, kGather);
    log.kernel(kCompute, kernel_of(3));
    join(log, kGather, kCompute);
  });
  EXPECT_DOUBLE_EQ(serial.seconds, 7);
  EXPECT_DOUBLE_EQ(serial.shares.bandwidth, 4);
  EXPECT_EQ(bound_of(serial.shares), "bandwidth");
  const auto beside = time_of(plain_machine(), [](WorkLog& log) {
    log.batch(kGather, gather_of(4));
    log.kernel(kCompute, kernel_of(3));
    join(log, kCompute, kGather);
  });
  EXPECT_DOUBLE_EQ(beside.seconds, 4);
  EXPECT_DOUBLE_EQ(beside.shares.exposed(), 1);
}

/// Gathers units one ahead of the unit in use, and releases each slot after use.
void prefetching(WorkLog& log, double gather, double compute, int units) {
  std::vector<std::size_t> gathered;
  std::vector<std::size_t> computed;
  const auto fetch = [&](int unit) {
    if (unit >= 2) { log.wait(kGather, computed[static_cast<std::size_t>(unit - 2)]); }
    log.batch(kGather, gather_of(gather));
    gathered.push_back(log.record(kGather));
  };
  fetch(0);
  for (int unit = 0; unit < units; ++unit) {
    if (unit + 1 < units) { fetch(unit + 1); }
    log.wait(kCompute, gathered[static_cast<std::size_t>(unit)]);
    log.kernel(kCompute, kernel_of(compute));
    computed.push_back(log.record(kCompute));
  }
  log.wait(kGather, computed.back());
}

TEST(StepTime, PrefetchHidesGathersExactlyWhereComputingTakesAsLong) {
  const int units = 8;
  for (const double gather : {1.0, 2.0, 3.0, 5.0}) {
    const double compute = 3;
    const auto time =
        time_of(plain_machine(), [&](WorkLog& log) { prefetching(log, gather, compute, units); });
    const double exposed = gather + (units - 1) * std::max(gather - compute, 0.0);
    EXPECT_NEAR(time.seconds, units * compute + exposed, 1e-9) << gather;
    EXPECT_NEAR(time.shares.exposed(), exposed, 1e-9) << gather;
  }
}

TEST(StepTime, CollectivesOverTheSameLinksShareThem) {
  const auto both = [](WorkLog& log) {
    log.batch(kGather, gather_of(4, 0));
    log.batch(kReduce, gather_of(2, 1));
    join(log, kCompute, kGather);
    join(log, kCompute, kReduce);
    join(log, kGather, kCompute);
    join(log, kReduce, kCompute);
  };
  // Two ranks of one node; then the ranks of the second group are on two nodes.
  for (const auto& [members, seconds] : {std::pair{std::vector{0, 1}, 6.0}, {{0, 4}, 4.0}}) {
    WorkLog log = two_ranks();
    log.add_group(members);
    for (int step = 0; step < 2; ++step) {
      both(log);
      log.end_step();
    }
    const auto time = step_time(std::vector<RankWork>{{&log, 2}}, plain_machine());
    EXPECT_DOUBLE_EQ(time.seconds, seconds);
  }
}

TEST(StepTime, LatencyOverlapsAndIsReportedSeparately) {
  MachineProfile machine = plain_machine();
  machine.protocols.front().start_seconds = 2;
  const auto time = time_of(machine, [](WorkLog& log) {
    trace::BatchWork batch = gather_of(1);
    batch.entries.push_back(batch.entries.front());  // one launch, so one latency
    log.batch(kGather, batch);
    join(log, kCompute, kGather);
    join(log, kGather, kCompute);
  });
  EXPECT_DOUBLE_EQ(time.seconds, 4);
  EXPECT_DOUBLE_EQ(time.shares.latency, 2);
  EXPECT_DOUBLE_EQ(time.shares.bandwidth, 2);
}

TEST(StepTime, KernelsAreSlowerBesideCollectives) {
  MachineProfile machine = plain_machine();
  machine.speed_beside_collectives = 0.5;
  const auto time = time_of(machine, [](WorkLog& log) {
    log.batch(kGather, gather_of(4));
    log.kernel(kCompute, kernel_of(3));  // 2 s next to it, 1 s after it
    join(log, kCompute, kGather);
    join(log, kGather, kCompute);
  });
  EXPECT_DOUBLE_EQ(time.seconds, 5);
}

TEST(StepTime, TheHostEnqueuesInOrderAndMayBeTheBottleneck) {
  MachineProfile machine = plain_machine();
  machine.enqueue_seconds = 2;
  const auto step = [](WorkLog& log) {
    log.kernel(kCompute, kernel_of(1));
    log.kernel(kCompute, kernel_of(1));
  };
  const auto bound = time_of(machine, step, 3);
  EXPECT_DOUBLE_EQ(bound.seconds, 4);
  EXPECT_DOUBLE_EQ(bound.shares.waiting, 2);
  machine.enqueue_seconds = 0.25;
  EXPECT_DOUBLE_EQ(time_of(machine, step, 3).seconds, 2);
}

TEST(StepTime, AWaitingHostEnqueuesNothing) {
  MachineProfile machine = plain_machine();
  machine.enqueue_seconds = 0.5;
  const auto time = time_of(machine, [](WorkLog& log) {
    log.kernel(kCompute, kernel_of(3));
    log.host_wait(log.record(kCompute));
  });
  EXPECT_DOUBLE_EQ(time.seconds, 3.5);  // the mark is enqueued while the kernel runs
}

TEST(StepTime, OnSharedCoresRanksAndTheirCollectivesTakeTurns) {
  MachineProfile machine = plain_machine();
  machine.cores = 2;
  machine.way = CollectiveWay::direct;
  machine.reduce_bytes_per_second = 1;
  machine.levels = {{"machine", 0, 1.0, {0.0}}};
  WorkLog log = two_ranks();
  for (int step = 0; step < 2; ++step) {
    log.kernel(kCompute, kernel_of(3));
    log.end_step();
  }
  for (const auto& [ranks, seconds] : {std::pair{1, 3.0}, {2, 3.0}, {4, 6.0}, {8, 12.0}}) {
    EXPECT_DOUBLE_EQ(step_time(std::vector<RankWork>{{&log, ranks}}, machine).seconds, seconds);
  }
  // Two ranks, each computing and gathering: four threads on two cores until the gather ends.
  const auto both = time_of(machine, [](WorkLog& two) {
    two.batch(kGather, {.label = "g", .group = 0, .entries = {{"all_gather", 1.0}}});
    two.kernel(kCompute, kernel_of(3));
    join(two, kCompute, kGather);
    join(two, kGather, kCompute);
  });
  EXPECT_DOUBLE_EQ(both.seconds, 4);
}

TEST(StepTime, SharedBandwidthIsBetweenAloneAndFullyShared) {
  MachineProfile machine = plain_machine();
  machine.cores = 3;
  machine.kernels = {{kernel_of(2), 2.0, 4.0}};
  WorkLog log = two_ranks();
  for (int step = 0; step < 2; ++step) {
    log.kernel(kCompute, kernel_of(2));
    log.end_step();
  }
  for (const auto& [ranks, seconds] : {std::pair{1, 2.0}, {2, 3.0}, {3, 4.0}, {6, 8.0}}) {
    EXPECT_DOUBLE_EQ(step_time(std::vector<RankWork>{{&log, ranks}}, machine).seconds, seconds);
  }
}

TEST(StepTime, RanksThatDoDifferentThingsMeetInTheirCollectives) {
  WorkLog busy = two_ranks();
  WorkLog idle = two_ranks();
  busy.enter("computing");
  idle.enter("waiting");
  for (int step = 0; step < 2; ++step) {
    busy.kernel(kCompute, kernel_of(5));
    for (WorkLog* log : {&busy, &idle}) {
      join(*log, kReduce, kCompute);
      log->batch(kReduce, gather_of(1));
      join(*log, kCompute, kReduce);
      log->end_step();
    }
  }
  const std::vector<RankWork> ranks{{&idle, 1}, {&busy, 1}};
  const StepTime time = step_time(ranks, plain_machine());
  EXPECT_DOUBLE_EQ(time.seconds, 6);
  EXPECT_DOUBLE_EQ(time.shares.waiting, 5);
  ASSERT_EQ(time.phases.size(), 1U);
  EXPECT_EQ(time.phases[0].phase, "waiting") << "the first rank's";
}

TEST(StepTime, CountsTheLastStepAndItsPhases) {
  WorkLog log = two_ranks();
  for (const double seconds : {100.0, 2.0, 3.0}) {
    log.enter("forward");
    log.kernel(kCompute, kernel_of(seconds));
    log.enter("update");
    log.kernel(kCompute, kernel_of(1));
    log.end_step();
  }
  const StepTime time = step_time(std::vector<RankWork>{{&log, 1}}, plain_machine());
  EXPECT_DOUBLE_EQ(time.seconds, 4);
  ASSERT_EQ(time.phases.size(), 2U);
  EXPECT_EQ(time.phases[0].phase, "forward");
  EXPECT_DOUBLE_EQ(time.phases[0].shares.computing, 3);
  EXPECT_DOUBLE_EQ(time.phases[1].shares.computing, 1);
  ASSERT_EQ(time.spans.size(), 6U);
  EXPECT_EQ(time.spans[1].stream, "compute");
  EXPECT_DOUBLE_EQ(time.spans[1].begin, 100);
  EXPECT_DOUBLE_EQ(time.spans[1].end, 101);
}

TEST(StepTime, RefusesLogsThatNeverEnd) {
  const auto waits_for_itself = [](WorkLog& log) {
    log.wait(kGather, log.marks());
    (void)log.record(kGather);
  };
  EXPECT_THROW((void)time_of(plain_machine(), waits_for_itself), ContractError);
  EXPECT_THROW((void)time_of(
                   plain_machine(), [](WorkLog& log) { log.kernel(kCompute, kernel_of(1)); }, 1),
               ContractError);
}

}  // namespace
}  // namespace tessera::step_time_test
