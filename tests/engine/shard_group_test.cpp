// Which ranks share a copy of the model states.
#include "engine/shard_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/plan/sharding.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::shard_group_test {
namespace {

using engine::ranks_of_each_machine;
using engine::Sharding;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Machines = std::vector<std::string>;

TEST(RanksOfEachMachine, AreTheSameNumberSideBySideOrNone) {
  EXPECT_EQ(ranks_of_each_machine(Machines{"a"}), 1);
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "a", "a"}), 3);
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "a", "b", "b"}), 2);
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "b", "c"}), 1);
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "a", "b"}), 0) << "fewer on the second";
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "b", "b"}), 0) << "more on the second";
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "a", "b", "c"}), 0);
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "b", "a", "b"}), 0) << "in turn";
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "a", "b", "b", "a", "a"}), 0) << "in turn by two";
  EXPECT_EQ(ranks_of_each_machine(Machines{"a", "a", "b", "b", "b", "b"}), 0);
}

TEST(RanksOfEachMachine, IsWhatHybridTakesWhereNothingIsGiven) {
  run_ranks(3, [](World& world) {
    EXPECT_EQ(ranks_of_each_machine(machines_of_ranks(world)), 3) << "threads";
    EXPECT_EQ(Sharding::make(world, {.strategy = Strategy::hybrid}).ranks(), 3);
  });
  simulate_rank({.ranks = 64}, [](World& world) {
    EXPECT_EQ(Sharding::make(world, {.strategy = Strategy::hybrid}).ranks(), 64) << "one machine";
  });
}

/// What error `body` ends with on `ranks` ranks.
template <class Kind>
std::string refusal(int ranks, const std::function<void(World&)>& body) {
  try {
    run_ranks(ranks, body);
  } catch (const Kind& error) { return error.what(); }
  return "nothing";
}

TEST(ShardGroup, ThatCannotBeIsRefusedWithThoseThatCan) {
  const auto refused = [](int ranks, Strategy strategy, int group) {
    return refusal<ConfigError>(ranks, [&](World& world) {
      ShardedModel model{world, {.strategy = strategy, .shard_group = group}};
    });
  };
  EXPECT_THAT(
      refused(6, Strategy::hybrid, 4),
      HasSubstr("shard_group is 4, and groups of so many do not make up 6 ranks: choose one "
                "of 1, 2, 3, 6"));
  EXPECT_THAT(refused(4, Strategy::hybrid, 8), HasSubstr("choose one of 1, 2, 4"));
  EXPECT_THAT(refused(4, Strategy::hybrid, -1), HasSubstr("choose one of 1, 2, 4"));
  for (const Strategy strategy : all_strategies()) {
    if (strategy == Strategy::hybrid) { continue; }
    EXPECT_THAT(refused(2, strategy, 1),
                AllOf(HasSubstr("`shard_group` has no effect under"),
                      HasSubstr(to_string(strategy)), HasSubstr("hybrid")));
  }
}

TEST(ShardGroup, OfAnotherSizeOnOneRankIsNamed) {
  const std::string text = refusal<ContractError>(4, [](World& world) {
    const int group = world.rank() == 2 ? 4 : 2;
    ToyModel toy{world, {.strategy = Strategy::hybrid, .shard_group = group}, {}};
  });
  EXPECT_THAT(
      text, AllOf(HasSubstr("the model differs between ranks"), HasSubstr("hybrid in groups of 2"),
                  HasSubstr("hybrid in groups of 4"), HasSubstr("on rank 2")));
}

}  // namespace
}  // namespace tessera::test::shard_group_test
