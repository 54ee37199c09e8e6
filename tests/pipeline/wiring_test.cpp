// Links, buffers and slots of schedules, worked out by hand and checked against rules.
#include "pipeline/wiring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "pipeline/random_schedule.hpp"

namespace tessera::pipeline::wiring_test {
namespace {

std::vector<int> buffers(const Schedule& schedule) {
  const Wiring wiring = wire(schedule);
  std::vector<int> all;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    all.push_back(wiring.buffers(rank));
  }
  return all;
}

// Rank r of P holds the inputs of P - r micro-batches and the next one's, two output gradients (one
// read, one arriving), and two of each outgoing boundary (one written, one leaving).
TEST(PipelineWiring, CountsTheBuffersOfOneForwardOneBackward) {
  EXPECT_THAT(buffers(one_forward_one_backward(4, 8)),
              testing::ElementsAre(2 + 2, 4 + 6, 3 + 6, 4));
  EXPECT_THAT(buffers(one_forward_one_backward(2, 1)), testing::ElementsAre(2, 2));
  EXPECT_THAT(buffers(one_forward_one_backward(1, 5)), testing::ElementsAre(0));
}

// All inputs are kept until the backward passes.
TEST(PipelineWiring, CountsTheBuffersOfGPipe) {
  EXPECT_THAT(buffers(gpipe(3, 7)), testing::ElementsAre(2 + 2, 7 + 6, 7 + 2));
}

// Between stages on one rank an output is the next stage's input, and nothing moves.
TEST(PipelineWiring, HandsOverWithinARank) {
  const Wiring wiring = wire(interleaved(1, 2, 1));
  ASSERT_EQ(wiring.links.size(), 2U);
  for (const Link& link : wiring.links) {
    EXPECT_TRUE(link.local());
    EXPECT_EQ(link.from_buffers, 0);
    EXPECT_EQ(link.to_buffers, 1);
  }
}

// The receiver reads in another order than the sender writes: it must hold them all, or both wait.
TEST(PipelineWiring, HoldsWhatComesBeforeItIsNeeded) {
  Schedule schedule = gpipe(2, 5);
  std::reverse(schedule.ranks[1].begin(), schedule.ranks[1].begin() + 5);
  check(schedule);
  const Wiring wiring = wire(schedule);
  EXPECT_EQ(wiring.links.front().items.size(), 5U);
  EXPECT_EQ(wiring.links.front().to_buffers, 5);
}

// Rank 0 starts micro-batch 1 only with a gradient that rank 1 computes after the outputs of all
// micro-batches. Of those outputs 2 are requested, and 3 wait. With 2 buffers both ranks would wait
// forever.
TEST(PipelineWiring, GivesTheSenderAsManyBuffersAsItNeedsToGoOn) {
  const auto all = [](Work work, int stage, int first, std::vector<Action>& actions) {
    for (int m = first; m < 5; ++m) { actions.push_back({work, stage, m}); }
  };
  Schedule schedule{.name = "ahead",
                    .micro_batches = 5,
                    .rank_of_stage = {0, 1, 0, 1},
                    .ranks = {{}, {{Work::forward, 1, 0}, {Work::forward, 3, 0}}}};
  std::vector<Action>& receiver = schedule.ranks[0];
  all(Work::forward, 0, 0, receiver);
  receiver.insert(receiver.end(), {{Work::forward, 2, 0}, {Work::backward, 2, 0}});
  all(Work::forward, 2, 1, receiver);
  all(Work::backward, 2, 1, receiver);
  all(Work::backward, 0, 0, receiver);
  std::vector<Action>& sender = schedule.ranks[1];
  all(Work::forward, 1, 1, sender);
  sender.insert(sender.end(), {{Work::backward, 3, 0}, {Work::backward, 1, 0}});
  for (int m = 1; m < 5; ++m) {
    sender.insert(sender.end(),
                  {{Work::forward, 3, m}, {Work::backward, 3, m}, {Work::backward, 1, m}});
  }
  check(schedule);
  const Wiring wiring = wire(schedule);
  const auto link = std::ranges::find_if(
      wiring.links, [](const Link& each) { return each.way == Work::forward && each.from == 1; });
  EXPECT_EQ(link->from_buffers, 3);
}

TEST(PipelineWiring, SlotsAreTakenByOnePairAtATimeAndAsFewAsAreInFlight) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Schedule schedule = random_schedule(1 + static_cast<int>(seed % 4), seed);
    const Wiring wiring = wire(schedule);
    const std::vector<int> most = most_in_flight(schedule);
    for (std::size_t rank = 0; rank < wiring.ranks.size(); ++rank) {
      std::map<int, std::pair<int, int>> taken;
      for (const Step& step : wiring.ranks[rank]) {
        const std::pair pair{step.action.stage, step.action.micro_batch};
        if (step.action.work == Work::forward) {
          EXPECT_TRUE(taken.emplace(step.slot, pair).second) << seed;
        }
        EXPECT_EQ(taken.at(step.slot), pair) << seed;
        EXPECT_LT(step.slot, most[rank]) << seed;
        if (step.ends()) { taken.erase(step.slot); }
      }
      EXPECT_TRUE(taken.empty()) << seed;
    }
  }
}

/// Executes all ranks' moves in lockstep: an item moves once both its ranks reach it, like hosts
/// that wait for each other. Returns the schedule's name if that never ends, or if a rank computes
/// without its item.
std::string stuck_in_concert(const Schedule& schedule) {
  const Wiring wiring = wire(schedule);
  std::vector<std::size_t> next(wiring.ranks.size());
  std::vector<int> moved(wiring.links.size());
  const auto move_of = [&](int rank) -> const Move* {
    const auto r = static_cast<std::size_t>(rank);
    return next[r] < wiring.in_concert[r].size() ? &wiring.in_concert[r][next[r]] : nullptr;
  };
  const auto is_at = [&](int rank, Move::Kind kind, int link) {
    const Move* const move = move_of(rank);
    return move != nullptr && move->kind == kind && move->number == link;
  };
  for (bool went_on = true; went_on;) {
    went_on = false;
    for (int rank = 0; rank < static_cast<int>(next.size()); ++rank) {
      const Move* const move = move_of(rank);
      if (move == nullptr || move->kind == Move::Kind::ask) { continue; }
      const auto r = static_cast<std::size_t>(rank);
      if (move->kind == Move::Kind::make) {
        const Item item = wiring.ranks[r][static_cast<std::size_t>(move->number)].takes();
        const auto link = static_cast<std::size_t>(item.link);
        if (item && !wiring.links[link].local() && item.number >= moved[link]) {
          return "too early";
        }
      } else {
        const int to = wiring.links[static_cast<std::size_t>(move->number)].to;
        if (!is_at(to, Move::Kind::ask, move->number)) { continue; }
        ++moved[static_cast<std::size_t>(move->number)];
        ++next[static_cast<std::size_t>(to)];
      }
      ++next[r];
      went_on = true;
    }
  }
  for (int rank = 0; rank < static_cast<int>(next.size()); ++rank) {
    if (move_of(rank) != nullptr) { return schedule.name; }
  }
  return "";
}

TEST(PipelineWiring, PairedMovesEndIfBothRanksOfALinkWait) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(stuck_in_concert(gpipe(ranks, 7)), "");
    EXPECT_EQ(stuck_in_concert(one_forward_one_backward(ranks, 7)), "");
    EXPECT_EQ(stuck_in_concert(zero_bubble(ranks, 7)), "");
    EXPECT_EQ(stuck_in_concert(interleaved(ranks, 3, 2 * ranks)), "");
  }
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    EXPECT_EQ(stuck_in_concert(random_schedule(1 + static_cast<int>(seed % 5), seed)), "") << seed;
  }
}

TEST(PipelineWiring, NoRankIsAtTwoLinksOfOneClass) {
  const auto count = [](const Schedule& schedule) {
    const Wiring wiring = wire(schedule);
    const std::vector<int> classes = classes_of(wiring.links);
    std::set<std::tuple<int, Work, int>> ends;  // rank, direction and class
    for (std::size_t l = 0; l < classes.size(); ++l) {
      const Link& link = wiring.links[l];
      if (link.local()) { continue; }
      EXPECT_TRUE(ends.emplace(link.from, link.way, classes[l]).second) << schedule.name;
      EXPECT_TRUE(ends.emplace(link.to, link.way, classes[l]).second) << schedule.name;
    }
    return classes.empty() ? 0 : *std::ranges::max_element(classes) + 1;
  };
  EXPECT_EQ(count(gpipe(2, 3)), 1);
  EXPECT_EQ(count(gpipe(7, 3)), 2);
  EXPECT_EQ(count(interleaved(2, 2, 2)), 2);
  EXPECT_EQ(count(interleaved(6, 2, 6)), 2);
  EXPECT_EQ(count(interleaved(5, 2, 5)), 3);
  for (std::uint32_t seed = 0; seed < 100; ++seed) { count(random_schedule(4, seed)); }
}

}  // namespace
}  // namespace tessera::pipeline::wiring_test
