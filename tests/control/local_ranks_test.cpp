// How long the meeting place of threads remembers groups.
#include "comm/control/local/local_ranks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace tessera::local_ranks_test {
namespace {

TEST(LocalRanks, ForgetsAGroupWhenTheLastOfItsCommunicatorsIsGone) {
  comm::LocalRanks ranks{3, {"gather"}, std::chrono::seconds{1}};
  const comm::LocalChannel& whole = *ranks.channel(0);
  std::weak_ptr<comm::LocalChannel> made;
  for (std::uint64_t nth = 0; nth < 3; ++nth) {
    const RankGroup pair{.name = "pair", .group = 5, .rank = 0, .members = {0, 2}};
    const RankGroup alone{.name = "pair", .group = 1, .rank = 0, .members = {1}};
    std::shared_ptr<comm::LocalChannel> of_rank_0 = ranks.split(whole, nth, pair);
    EXPECT_TRUE(made.expired()) << "what was split before";
    made = of_rank_0;
    of_rank_0.reset();
    EXPECT_FALSE(made.expired()) << "rank 2 has yet to ask for it";
    const std::shared_ptr<comm::LocalChannel> of_rank_2 = ranks.split(whole, nth, pair);
    EXPECT_EQ(of_rank_2, made.lock());
    EXPECT_NE(ranks.split(whole, nth, alone), of_rank_2);
  }
}

}  // namespace
}  // namespace tessera::local_ranks_test
