#include "comm/rank_split.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/control_text.hpp"
#include "tessera/base/error.hpp"

namespace tessera::rank_split_test {
namespace {

/// The job's rank: ten times the rank here.
std::string tenfold(int rank) {
  return "rank " + std::to_string(10 * rank);
}

comm::RankSplit split_of(const GroupOf& group_of, const std::string& name = "shard") {
  return comm::split_ranks(group_of, 4, name, tenfold);
}

std::string code_of(const GroupOf& group_of, const std::string& name = "shard") {
  return comm::encode(split_of(group_of, name));
}

std::string difference(const std::vector<std::string>& codes) {
  return comm::first_difference(codes, tenfold);
}

const GroupOf kPairs = [](int rank) { return rank / 2; };

TEST(RankSplit, NegativeGroupsAreRefusedWithTheRankThatHasOne) {
  EXPECT_EQ(comm::split_ranks(kPairs, 4, "shard", tenfold).groups,
            (std::vector<std::int32_t>{0, 0, 1, 1}));
  EXPECT_THAT(
      [] { (void)comm::split_ranks([](int rank) { return 1 - rank; }, 4, "shard", tenfold); },
      testing::ThrowsMessage<ContractError>(
          "split \"shard\": rank 20 is in group -1; groups must be 0 or more"));
}

TEST(RankSplit, EverythingThatMustAgreeChangesTheCode) {
  const std::vector<comm::RankSplit> splits{split_of(kPairs), split_of(kPairs, "replica"),
                                            split_of([](int rank) { return rank % 2; }),
                                            split_of([](int rank) { return rank; })};
  for (std::size_t i = 0; i < splits.size(); ++i) {
    for (std::size_t j = 0; j < splits.size(); ++j) {
      EXPECT_EQ(comm::encode(splits[i]) == comm::encode(splits[j]), i == j);
      EXPECT_EQ(comm::hash_of(splits[i]) == comm::hash_of(splits[j]), i == j);
    }
  }
}

TEST(RankSplit, TheFirstDifferenceIsNamed) {
  const std::string pairs = code_of(kPairs);
  EXPECT_EQ(difference({pairs, pairs, code_of(kPairs, "replica"), pairs}),
            "rank 20 splits off \"replica\" where rank 0 splits off \"shard\"");
  EXPECT_EQ(difference({pairs, pairs, pairs, code_of([](int rank) { return rank % 2; })}),
            "split \"shard\": rank 30 puts rank 10 in group 1, but rank 0 puts it in group 0; pass "
            "the same rule on every rank");
}

TEST(RankSplit, TheHighestOfTheRanksNumbersIsTaken) {
  const auto agree = [](comm::TextCall call) {
    return comm::agree_on_highest(
        3, "shard",
        [&](const std::string& mine) {
          return std::vector{mine, comm::seal(call, "12", "shard"), mine};
        },
        tenfold);
  };
  EXPECT_EQ(agree(comm::TextCall::number), 12);
  EXPECT_THAT([&] { (void)agree(comm::TextCall::exchange); },
              testing::ThrowsMessage<ContractError>(
                  "rank 10 exchanges texts where rank 0 makes a communicator for \"shard\"; every "
                  "rank must make the same collective calls in the same order"));
}

}  // namespace
}  // namespace tessera::rank_split_test
