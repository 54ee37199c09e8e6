#include "engine/plan/use_order.hpp"

#include <gtest/gtest.h>

namespace tessera::engine::schedule_test {
namespace {

constexpr Use f(std::size_t unit) {
  return {UseKind::forward, unit};
}
constexpr Use b(std::size_t unit) {
  return {UseKind::backward, unit};
}

std::vector<Use> upcoming(const UseOrder& schedule) {
  const auto uses = schedule.upcoming();
  return {uses.begin(), uses.end()};
}

void run(UseOrder& schedule, const std::vector<Use>& uses) {
  schedule.begin_round();
  for (const Use use : uses) { schedule.note(use); }
  schedule.end_round();
}

TEST(UseOrder, PredictsNothingInTheFirstMicroBatch) {
  UseOrder schedule;
  schedule.begin_round();
  schedule.note(f(0));
  EXPECT_TRUE(schedule.upcoming().empty());
}

TEST(UseOrder, PredictsTheLastMicroBatchsOrder) {
  UseOrder schedule;
  run(schedule, {f(0), f(1), b(1), b(0)});
  schedule.begin_round();
  schedule.note(f(0));
  EXPECT_EQ(upcoming(schedule), (std::vector<Use>{f(1), b(1), b(0)}));
}

TEST(UseOrder, ADeclaredOrderIsForwardAndItsReverse) {
  UseOrder schedule;
  schedule.declare(std::vector<std::size_t>{2, 0});
  schedule.begin_round();
  EXPECT_EQ(upcoming(schedule), (std::vector<Use>{f(2), f(0), b(0), b(2)}));
}

TEST(UseOrder, LeavingTheKnownOrderEndsThePredictionAndIsLearned) {
  UseOrder schedule;
  run(schedule, {f(0), f(1), b(1), b(0)});
  EXPECT_TRUE(schedule.take_changed());
  schedule.begin_round();
  schedule.note(f(1));
  EXPECT_TRUE(schedule.upcoming().empty());
  schedule.note(b(1));
  schedule.end_round();
  EXPECT_TRUE(schedule.take_changed());
  schedule.begin_round();
  schedule.note(f(1));
  EXPECT_EQ(upcoming(schedule), (std::vector<Use>{b(1)}));
}

TEST(UseOrder, AnUnchangedOrderIsReportedOnce) {
  UseOrder schedule;
  run(schedule, {f(0), b(0)});
  EXPECT_TRUE(schedule.take_changed());
  run(schedule, {f(0), b(0)});
  EXPECT_FALSE(schedule.take_changed());
}

TEST(UseOrder, AMicroBatchThatOpensNothingKeepsTheKnownOrder) {
  UseOrder schedule;
  run(schedule, {f(0), b(0)});
  EXPECT_TRUE(schedule.take_changed());
  run(schedule, {});
  EXPECT_FALSE(schedule.take_changed());
  EXPECT_TRUE(schedule.upcoming().empty()) << "between micro-batches";
  schedule.begin_round();
  EXPECT_EQ(upcoming(schedule), (std::vector<Use>{f(0), b(0)}));
}

TEST(UseOrder, MoreUsesThanKnownAreNoPrediction) {
  UseOrder schedule;
  run(schedule, {f(0), b(0)});
  schedule.begin_round();
  for (const Use use : {f(0), b(0), b(0)}) { schedule.note(use); }
  EXPECT_TRUE(schedule.upcoming().empty());
}

TEST(UseOrder, CountsTheUnitsThatAreOnTheirWayBackAtOnce) {
  const auto most = [](std::vector<std::size_t> forward, std::size_t left_out = 99) {
    UseOrder schedule;
    schedule.declare(forward);
    return schedule.most_pending([=](std::size_t unit) { return unit != left_out; });
  };
  EXPECT_EQ(most({}), 0);
  EXPECT_EQ(most({0, 1, 2}), 1);
  EXPECT_EQ(most({0, 0, 1, 1}), 1);
  EXPECT_EQ(most({0, 1, 2, 0, 1, 2}), 3);
  EXPECT_EQ(most({0, 1, 2, 0, 1, 2}, 1), 2);
  EXPECT_EQ(most({0, 1, 2, 1, 0}), 3);
  EXPECT_EQ(most({0, 1, 0, 2, 3, 2}), 2);
}

TEST(UseOrder, CountsWhatTheForwardUsesOfThisRoundWillNeed) {
  UseOrder schedule;
  run(schedule, {f(0), b(0)});
  const auto all = [](std::size_t) { return true; };
  schedule.begin_round();
  EXPECT_EQ(schedule.most_pending_now(all, 0), 0);
  for (const Use use : {f(0), f(1), f(2), f(0), f(1), f(2), b(2)}) { schedule.note(use); }
  EXPECT_EQ(schedule.most_pending_now(all, 0), 3);
  EXPECT_EQ(schedule.most_pending_now([](std::size_t unit) { return unit > 0; }, 0), 2);
  EXPECT_EQ(schedule.most_pending_now(all, 1), 0);
}

}  // namespace
}  // namespace tessera::engine::schedule_test
