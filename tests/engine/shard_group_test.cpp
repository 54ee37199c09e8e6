// Shard groups: the ranks that share a copy of the model states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/plan/sharding.hpp"
#include "engine/rules/options.hpp"
#include "support/refusal.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/machines.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::shard_group_test {
namespace {

using engine::ranks_of_each_machine;
using engine::Sharding;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Machines = std::vector<std::string>;

TEST(RanksOfEachMachine, AreContiguousAndEqualOrNone) {
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

TEST(RanksOfEachMachine, IsHybridsDefault) {
  run_ranks(3, [](World& world) {
    EXPECT_EQ(ranks_of_each_machine(machines_of_ranks(world)), 3) << "threads";
    EXPECT_EQ(Sharding::make(world, {.strategy = Strategy::hybrid}).ranks(), 3);
  });
  simulate_rank({.ranks = 64}, [](World& world) {
    EXPECT_EQ(Sharding::make(world, {.strategy = Strategy::hybrid}).ranks(), 64) << "one machine";
  });
}

TEST(ShardGroup, OfAnotherSizeOnOneRankIsNamed) {
  const std::string text = refusal<ContractError>(4, [](World& world) {
    const int group = world.rank() == 2 ? 4 : 2;
    ToyModel toy{world, {.strategy = Strategy::hybrid, .shard_group = group}, {}};
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("the model differs between ranks"), HasSubstr("'shard_group 2'"),
                    HasSubstr("'shard_group 4'"), HasSubstr("on rank 2")));
}

}  // namespace
}  // namespace tessera::test::shard_group_test
