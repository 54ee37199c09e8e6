// Channels for a model's states, and the meshes that a model accepts.
#include "engine/plan/sharding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/groups.hpp"
#include "support/refusal.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::sharding_test {
namespace {

using engine::Sharding;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Dims = std::vector<MeshDim>;

TEST(MeshOf, AStrategyIsShortForItsMesh) {
  const auto dims_of = [](Strategy strategy, int ranks, int group) {
    return mesh_of(strategy, ranks, group).dims();
  };
  for (const Strategy strategy : {Strategy::dp, Strategy::ddp}) {
    EXPECT_EQ(dims_of(strategy, 6, 0), (Dims{{"replicate", 6}}));
  }
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    EXPECT_EQ(dims_of(strategy, 6, 0), (Dims{{"shard", 6}}));
  }
  for (const int group : divisors(6)) {
    EXPECT_EQ(dims_of(Strategy::hybrid, 6, group),
              (Dims{{"replicate", 6 / group}, {"shard", group}}));
  }
  EXPECT_THROW((void)mesh_of(Strategy::hybrid, 6, 4), ContractError);
  EXPECT_THROW((void)mesh_of(Strategy::hybrid, 6, 0), ContractError);
}

TEST(Sharding, MovesStatesAlongShardAndReducedGradientsAlongReplicate) {
  for (const int size : divisors(6)) {
    run_ranks(6, [&](World& world) {
      const Sharding sharding =
          Sharding::make(world, {.strategy = Strategy::hybrid, .shard_group = size});
      EXPECT_EQ(sharding.ranks(), size);
      EXPECT_EQ(sharding.gather().communicator.size(), size);
      EXPECT_EQ(sharding.reduce().communicator.size(), size);
      EXPECT_EQ(sharding.across().has_value(), size < 6);
      if (sharding.across()) { EXPECT_EQ(sharding.across()->communicator.size(), 6 / size); }
    });
  }
}

TEST(Sharding, OfAStrategyWithoutAMeshSplitsNothing) {
  for (const Strategy strategy : all_strategies()) {
    if (strategy == Strategy::hybrid) { continue; }
    run_ranks(3, [strategy](World& world) {
      const Sharding sharding = Sharding::make(world, {.strategy = strategy});
      EXPECT_EQ(sharding.data_ranks(), 3);
      EXPECT_EQ(sharding.normed_shard(), world.rank());
      EXPECT_EQ(&sharding.gather().communicator, &world.gather_channel().communicator);
      EXPECT_EQ(&sharding.reduce().communicator, &world.reduce_channel().communicator);
      EXPECT_FALSE(sharding.across());
    });
  }
}

TEST(Sharding, ModelsOfAWorldShareItsCommunicatorsHoweverTheMeshIsGiven) {
  run_ranks(4, [](World& world) {
    const Sharding first = Sharding::make(world, {.strategy = Strategy::hybrid, .shard_group = 2});
    const Sharding second = Sharding::make(
        world, {.strategy = Strategy::zero1, .mesh = {{"replicate", 2}, {"shard", 2}}});
    EXPECT_EQ(&first.gather().communicator, &second.gather().communicator);
    EXPECT_EQ(&first.across()->communicator, &second.across()->communicator);
    EXPECT_NE(&first.reduce().communicator, &first.across()->communicator);
  });
}

TEST(Sharding, ForInferenceSplitsOnlyTheGathers) {
  run_ranks(4, [](World& world) {
    const Sharding sharding = Sharding::make(
        world, {.strategy = Strategy::hybrid, .shard_group = 2, .purpose = Purpose::inference});
    EXPECT_EQ(sharding.gather().communicator.size(), 2);
    EXPECT_EQ(&sharding.reduce().communicator, &world.reduce_channel().communicator);
    EXPECT_FALSE(sharding.across());
  });
}

TEST(MeshOfAModel, IsRefusedWithAdviceIfUnusable) {
  struct Case {
    ModelOptions options;
    std::string text;
  };
  const std::vector<Case> cases{
      {{.strategy = Strategy::zero3, .mesh = {{"replicate", 2}, {"shard", 3}}},
       "mesh replicate 2 x shard 3 has 6 ranks, but the job has 4: choose sizes whose product is "
       "4"},
      {{.strategy = Strategy::zero3, .mesh = {{"shards", 4}}}, "mesh: 'shards' is not a dimension"},
      {{.strategy = Strategy::hybrid, .shard_group = 2, .mesh = {{"replicate", 2}, {"shard", 2}}},
       "mesh replicate 2 x shard 2 and shard_group 2 are both given: leave `shard_group` at 0"},
      {{.strategy = Strategy::ddp, .mesh = {{"replicate", 2}, {"shard", 2}}},
       "mesh replicate 2 x shard 2: ddp shards nothing; put all ranks along replicate, or choose "
       "zero1, zero2 or zero3"},
      {{.strategy = Strategy::dp, .mesh = {{"shard", 4}}}, "mesh shard 4: dp shards nothing"},
  };
  for (const auto& [options, text] : cases) {
    EXPECT_THAT(refusal<ConfigError>(4, [&](World& world) { ShardedModel{world, options}; }),
                HasSubstr(text));
  }
}

TEST(MeshOfAModel, ThatDiffersOnOneRankIsNamed) {
  const std::string text = refusal<ContractError>(4, [](World& world) {
    ModelOptions options{.strategy = Strategy::zero3, .mesh = {{"replicate", 2}, {"shard", 2}}};
    if (world.rank() == 2) { options.mesh = {{"shard", 2}, {"replicate", 2}}; }
    ToyModel toy{world, options, {}};
  });
  EXPECT_THAT(text, AllOf(HasSubstr("the model differs between ranks"),
                          HasSubstr("'mesh replicate=2,shard=2'"),
                          HasSubstr("'mesh shard=2,replicate=2'"), HasSubstr("on rank 2")));
}

// The ranks of a group agree on an order of units that differs from the other group's.
TEST(Sharding, AGroupInAnotherOrderIsAnErrorThatNamesTheUnits) {
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
              AllOf(HasSubstr("reduce one across groups"), HasSubstr("reduce two across groups"),
                    HasSubstr("channel replicate reduce")));
}

}  // namespace
}  // namespace tessera::test::sharding_test
