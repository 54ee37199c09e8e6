// The rank to blame for a call that is not complete by its deadline.
#include "comm/control/wait_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tessera::test::wait_graph_test {
namespace {

using Call = comm::WaitGraph::Call;

struct Case {
  const char* what;
  std::vector<Call> calls;
  std::size_t call;  // the blamed call, starting from the first
  std::vector<int> ranks;
};

TEST(WaitGraph, FollowsWaitingRanksToThoseThatDoNotWait) {
  const std::vector<Case> cases{
      {"one call", {{.missing = {2, 3}, .waiting = {0, 1}}}, 0, {2, 3}},
      {"one of the missing waits elsewhere",
       {{.missing = {1, 2}, .waiting = {0}}, {.missing = {3}, .waiting = {1}}},
       0,
       {2}},
      {"all of the missing wait elsewhere",
       {{.missing = {1}, .waiting = {0}}, {.missing = {2, 3}, .waiting = {1}}},
       1,
       {2, 3}},
      {"a chain",
       {{.missing = {1}, .waiting = {0}},
        {.missing = {3}, .waiting = {2}},
        {.missing = {2}, .waiting = {1}}},
       1,
       {3}},
      {"a circle with a way out",
       {{.missing = {1}, .waiting = {0}},
        {.missing = {0, 2}, .waiting = {1}},
        {.missing = {4}, .waiting = {3}}},
       1,
       {2}},
  };
  for (const Case& tested : cases) {
    SCOPED_TRACE(tested.what);
    const std::optional<comm::Blame> blame = comm::find_blame({tested.calls}, 0);
    ASSERT_TRUE(blame);
    EXPECT_EQ(blame->call, tested.call);
    EXPECT_EQ(blame->ranks, tested.ranks);
  }
}

TEST(WaitGraph, BlamesNoRankIfRanksWaitForEachOther) {
  EXPECT_FALSE(
      comm::find_blame({{{.missing = {1}, .waiting = {0}}, {.missing = {0}, .waiting = {1}}}}, 0));
  EXPECT_FALSE(
      comm::find_blame({{{.missing = {1}, .waiting = {0}}, {.missing = {}, .waiting = {1}}}}, 0));
}

}  // namespace
}  // namespace tessera::test::wait_graph_test
