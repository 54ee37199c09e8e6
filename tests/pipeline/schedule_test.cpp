// Schedules are complete, end, and hold what they state; errors name what is invalid.
#include "tessera/pipeline/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tessera/base/error.hpp"
#include "tessera/pipeline/timeline.hpp"

namespace tessera::pipeline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

constexpr int kMostRanks = 6;
constexpr int kMostMicroBatches = 13;

void for_sizes(const std::function<void(int ranks, int micro_batches)>& body) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (int micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
      SCOPED_TRACE(::testing::Message()
                   << ranks << " ranks, " << micro_batches << " micro-batches");
      body(ranks, micro_batches);
    }
  }
}

TEST(PipelineSchedule, GPipeHoldsEveryMicroBatchAndHasTheBubbleOfTheFormula) {
  for_sizes([](int ranks, int micro_batches) {
    const Schedule schedule = gpipe(ranks, micro_batches);
    EXPECT_NEAR(play(schedule).bubble(), bubble_by_formula(ranks, micro_batches), 1e-12);
    EXPECT_THAT(most_in_flight(schedule), Each(micro_batches));
  });
}

// A rank has one micro-batch in flight for each stage from its own to the last, however many
// micro-batches there are.
TEST(PipelineSchedule, OneForwardOneBackwardHoldsNoMoreMicroBatchesThanStages) {
  for_sizes([](int ranks, int micro_batches) {
    const Schedule schedule = one_forward_one_backward(ranks, micro_batches);
    EXPECT_NEAR(play(schedule).bubble(), bubble_by_formula(ranks, micro_batches), 1e-12);
    const std::vector<int> held = most_in_flight(schedule);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(held[static_cast<std::size_t>(rank)], std::min(ranks - rank, micro_batches));
    }
  });
}

TEST(PipelineSchedule, InterleavingDividesTheBubbleByTheChunks) {
  for_sizes([](int ranks, int micro_batches) {
    if (micro_batches % ranks != 0) {
      EXPECT_THROW(static_cast<void>(interleaved(ranks, 2, micro_batches)), ConfigError);
      return;
    }
    for (int chunks = 1; chunks <= 4; ++chunks) {
      const Schedule schedule = interleaved(ranks, chunks, micro_batches);
      EXPECT_NEAR(play(schedule).bubble(), bubble_by_formula(ranks, micro_batches, chunks), 1e-12);
    }
  });
}

// If F, B and W take one unit each, P - 1 units of bubble remain of 1F1B's 3 (P - 1).
TEST(PipelineSchedule, ZeroBubbleLeavesAThirdOfTheBubbleInTheMemoryOfOneForwardOneBackward) {
  for_sizes([](int ranks, int micro_batches) {
    const Schedule schedule = zero_bubble(ranks, micro_batches);
    const Timeline timeline = play(schedule);
    EXPECT_THAT(most_in_flight(schedule), Each(Le(std::min(ranks, micro_batches))));
    if (micro_batches >= ranks) { EXPECT_EQ(timeline.length, 3 * micro_batches + ranks - 1); }
    EXPECT_LE(timeline.length, play(one_forward_one_backward(ranks, micro_batches)).length);
  });
}

/// A hand-written schedule of 2 ranks and 2 micro-batches, and its fault.
struct Mistake {
  const char* says;
  std::function<void(Schedule&)> make;
};

TEST(PipelineSchedule, NamesTheMistakeInASchedule) {
  const auto rank = [](Schedule& s, std::size_t r) -> std::vector<Action>& { return s.ranks[r]; };
  const std::vector<Mistake> mistakes = {
      {"it has no micro-batches", [](Schedule& s) { s.micro_batches = 0; }},
      {"it has no stages", [](Schedule& s) { s.rank_of_stage.clear(); }},
      {"stage 1 is on rank 2, but there are actions for 2 ranks",
       [](Schedule& s) { s.rank_of_stage[1] = 2; }},
      {"rank 0 makes the forward of micro-batch 0 on stage 1, which is on rank 1",
       [&](Schedule& s) { rank(s, 0)[0].stage = 1; }},
      {"rank 1 makes the forward of micro-batch 2 on stage 1, but there are 2 stages and 2 "
       "micro-batches",
       [&](Schedule& s) { rank(s, 1)[0].micro_batch = 2; }},
      {"rank 0 makes the forward of micro-batch 0 on stage 0 twice",
       [&](Schedule& s) { rank(s, 0)[1] = rank(s, 0)[0]; }},
      {"rank 1 makes the backward of micro-batch 0 on stage 1 before its forward",
       [&](Schedule& s) { std::swap(rank(s, 1)[0], rank(s, 1)[1]); }},
      {"rank 1 makes the backward_weight of micro-batch 0 on stage 1 before its backward_input",
       [&](Schedule& s) { rank(s, 1)[1].work = Work::backward_weight; }},
      {"rank 0 makes the backward of micro-batch 1 on stage 0 twice",
       [&](Schedule& s) { rank(s, 0).push_back(rank(s, 0).back()); }},
      {"no rank makes the backward of micro-batch 1 on stage 0",
       [&](Schedule& s) { rank(s, 0).pop_back(); }},
      {"no rank makes the backward_weight of micro-batch 1 on stage 0",
       [&](Schedule& s) { rank(s, 0).back().work = Work::backward_input; }},
      {"no rank makes the forward of micro-batch 0 on stage 0",
       [](Schedule& s) {
         for (auto& actions : s.ranks) { actions.clear(); }
       }},
      // Rank 1 needs micro-batch 1 before it sends the gradient that rank 0 needs first.
      {"it never ends: rank 0 is at the backward of micro-batch 0 on stage 0 and waits for rank "
       "1's "
       "backward of micro-batch 0 on stage 1; rank 1 is at the forward of micro-batch 1 on stage 1 "
       "and waits for rank 0's forward of micro-batch 1 on stage 0",
       [&](Schedule& s) {
         std::swap(rank(s, 0)[1], rank(s, 0)[2]);
         std::swap(rank(s, 1)[1], rank(s, 1)[2]);
       }},
      {"rank 0 would hold the activations of 2 micro-batches from the forward of micro-batch 1 on "
       "stage 0 on, but `in_flight_limit` is 1; put backward passes before it, or raise the limit",
       [](Schedule& s) { s.in_flight_limit = 1; }},
      {"`in_flight_limit` is 0; give 1 or more, or none",
       [](Schedule& s) { s.in_flight_limit = 0; }},
  };
  for (const Mistake& mistake : mistakes) {
    Schedule schedule = one_forward_one_backward(2, 2);
    mistake.make(schedule);
    try {
      check(schedule);
      ADD_FAILURE() << "nothing was thrown: " << mistake.says;
    } catch (const ConfigError& error) {
      EXPECT_THAT(std::string{error.what()}, HasSubstr(mistake.says));
    }
  }
}

// It has too few actions for its micro-batches, and nothing is allocated for those.
TEST(PipelineSchedule, ACountOfMicroBatchesBeyondItsActionsIsRefusedAtOnce) {
  Schedule schedule = one_forward_one_backward(2, 2);
  schedule.micro_batches = std::numeric_limits<int>::max();
  const auto begin = std::chrono::steady_clock::now();
  try {
    check(schedule);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(std::string{error.what()},
                HasSubstr("no rank makes the forward of micro-batch 2 on stage 0"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{1});
}

TEST(PipelineSchedule, RefusesSizesBelowOne) {
  EXPECT_THROW(static_cast<void>(gpipe(0, 1)), ConfigError);
  EXPECT_THROW(static_cast<void>(one_forward_one_backward(1, 0)), ConfigError);
  EXPECT_THROW(static_cast<void>(interleaved(2, 0, 2)), ConfigError);
  EXPECT_THROW(static_cast<void>(zero_bubble(-1, 4)), ConfigError);
}

/// Whether the graph of dependencies has no cycle, by removing actions without dependencies.
bool ends(const Schedule& schedule) {
  using Node = std::tuple<int, int, int>;  // stage, micro-batch; 0 forward, 1 backward
  const auto node = [](const Action& a) {
    return Node{a.stage, a.micro_batch, a.work == Work::forward ? 0 : 1};
  };
  std::map<Node, std::set<Node>> waits;
  for (const auto& actions : schedule.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const auto [stage, m, part] = node(actions[i]);
      std::set<Node>& on = waits[{stage, m, part}];
      if (i > 0) { on.insert(node(actions[i - 1])); }
      if (part == 0 && stage > 0) { on.insert({stage - 1, m, 0}); }
      if (part == 1) {
        on.insert(stage + 1 < schedule.stages() ? Node{stage + 1, m, 1} : Node{stage, m, 0});
      }
    }
  }
  for (bool taken = true; taken;) {
    taken = false;
    for (auto it = waits.begin(); it != waits.end();) {
      const bool free = std::none_of(it->second.begin(), it->second.end(),
                                     [&](const Node& on) { return waits.contains(on); });
      taken |= free;
      it = free ? waits.erase(it) : std::next(it);
    }
  }
  return waits.empty();
}

// Shuffled schedules: each is refused if and only if its graph has a cycle.
TEST(PipelineSchedule, RefusesExactlyTheOrdersThatNeverEnd) {
  std::mt19937 random{20};
  int refused = 0;
  int taken = 0;
  for (int round = 0; round < 3000; ++round) {
    const int ranks = 2 + round % 3;
    Schedule schedule = round % 2 == 0 ? interleaved(ranks, 2, ranks)
                                       : one_forward_one_backward(ranks, 1 + round % 5);
    for (auto& actions : schedule.ranks) {
      for (int swaps = 0; swaps < 2; ++swaps) {
        const std::size_t at = random() % (actions.size() - 1);
        const bool own = actions[at].stage == actions[at + 1].stage &&
                         actions[at].micro_batch == actions[at + 1].micro_batch;
        if (!own) { std::swap(actions[at], actions[at + 1]); }
      }
    }
    bool passes = true;
    try {
      check(schedule);
    } catch (const ConfigError& error) {
      passes = false;
      ASSERT_THAT(std::string{error.what()}, HasSubstr("never ends"));
    }
    ASSERT_EQ(passes, ends(schedule)) << "round " << round;
    ++(passes ? taken : refused);
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(taken, 300);
}

}  // namespace
}  // namespace tessera::pipeline
