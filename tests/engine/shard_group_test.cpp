// Which ranks share a copy of the model states.
#include "engine/shard_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "engine/model/options.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::shard_group_test {
namespace {

using engine::ranks_of_each_machine;
using engine::ShardGroup;
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
    EXPECT_EQ(ShardGroup::make(world, {.strategy = Strategy::hybrid}).ranks(), 3);
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

TEST(ShardGroup, KeepsNeighbouringShardsAndTheNormOfEachIsSomeonesOnce) {
  constexpr int kRanks = 6;
  for (const int size : {1, 2, 3, 6}) {
    std::mutex mutex;
    std::vector<int> normed(kRanks);
    run_ranks(kRanks, [&](World& world) {
      const ShardGroup group =
          ShardGroup::make(world, {.strategy = Strategy::hybrid, .shard_group = size});
      const UnitLayout layout = UnitLayout::make({{"w", {1000}}}, {}, kRanks);
      const SegmentLayout& segment = layout.segments().front();
      EXPECT_EQ(group.ranks(), size);
      EXPECT_EQ(group.kept_shards(), kRanks / size);
      EXPECT_EQ(group.gather().communicator.size(), size);
      EXPECT_EQ(group.reduce().communicator.size(), size);
      EXPECT_EQ(group.across().has_value(), size < kRanks);
      if (group.across()) { EXPECT_EQ(group.across()->communicator.size(), kRanks / size); }
      const Range kept = group.kept(segment);
      EXPECT_EQ(kept.elems * size, segment.padded_elems());
      EXPECT_EQ(kept.first, kept.elems * (world.rank() % size));
      const Range mine = segment.shard(group.normed_shard());
      EXPECT_GE(mine.first, kept.first);
      EXPECT_LE(mine.first + mine.elems, kept.first + kept.elems);
      const std::lock_guard lock{mutex};
      ++normed[static_cast<std::size_t>(group.normed_shard())];
    });
    EXPECT_EQ(normed, std::vector<int>(kRanks, 1)) << size;
  }
}

TEST(ShardGroup, OtherStrategiesAreOneGroupAndDivideNothing) {
  run_ranks(3, [](World& world) {
    const ShardGroup group = ShardGroup::make(world, {.strategy = Strategy::zero3});
    EXPECT_EQ(group.ranks(), 3);
    EXPECT_EQ(group.kept_shards(), 1);
    EXPECT_EQ(&group.gather().communicator, &world.gather_channel().communicator);
    EXPECT_EQ(&group.reduce().communicator, &world.reduce_channel().communicator);
    EXPECT_FALSE(group.across());
    EXPECT_EQ(group.normed_shard(), world.rank());
  });
}

TEST(ShardGroup, ModelsOfAWorldShareItsCommunicators) {
  run_ranks(4, [](World& world) {
    const ModelOptions options{.strategy = Strategy::hybrid, .shard_group = 2};
    const ShardGroup first = ShardGroup::make(world, options);
    const ShardGroup second = ShardGroup::make(world, options);
    EXPECT_EQ(&first.gather().communicator, &second.gather().communicator);
    EXPECT_EQ(&first.across()->communicator, &second.across()->communicator);
    EXPECT_NE(&first.reduce().communicator, &first.across()->communicator);
  });
}

TEST(ShardGroup, ForInferenceOnlyGathersAreWithinIt) {
  run_ranks(4, [](World& world) {
    const ShardGroup group = ShardGroup::make(
        world, {.strategy = Strategy::hybrid, .shard_group = 2, .purpose = Purpose::inference});
    EXPECT_EQ(group.gather().communicator.size(), 2);
    EXPECT_EQ(&group.reduce().communicator, &world.reduce_channel().communicator);
    EXPECT_FALSE(group.across());
  });
}

TEST(ShardGroup, ASimulatedJobIsOnOneMachine) {
  simulate_rank({.ranks = 64}, [](World& world) {
    EXPECT_EQ(ShardGroup::make(world, {.strategy = Strategy::hybrid}).ranks(), 64);
  });
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

// The ranks of a group agree on an order of units that the other group has not.
TEST(ShardGroup, AGroupThatGoesAnotherWayIsAnErrorThatNamesTheUnits) {
  const std::string text = refusal<Error>(4, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::hybrid, .shard_group = 2}};
    Unit units[] = {model.add_unit("one", {{"w", {40}}}), model.add_unit("two", {{"w", {40}}})};
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{});
    if (world.rank() >= 2) { std::swap(units[0], units[1]); }
    (void)model.forward(units[0]);
    (void)model.forward(units[1]);
    (void)model.backward(units[1]);
    (void)model.backward(units[0]);
    model.step();
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("reduce one across groups"), HasSubstr("reduce two across groups")));
}

}  // namespace
}  // namespace tessera::test::shard_group_test
