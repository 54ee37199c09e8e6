// When a rank of a model on a mesh is lost, every rank learns its place in the mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::mesh_failure_test {
namespace {

struct Told {
  std::string by_run;                 ///< the error of the job
  std::vector<std::string> to_peers;  ///< the errors of the other ranks' calls
};

Told lose_rank_3(const std::vector<MeshDim>& mesh) {
  Told told;
  std::mutex mutex;
  try {
    run_ranks(4, [&](World& world) {
      const ShardedModel model{world, {.strategy = Strategy::zero3, .mesh = mesh}};
      if (world.rank() == 3) { throw FormatError{"lost"}; }
      try {
        world.barrier();
      } catch (const CommError& error) {
        const std::scoped_lock lock{mutex};
        told.to_peers.emplace_back(error.what());
        throw;
      }
    });
  } catch (const FormatError& error) { told.by_run = error.what(); }
  return told;
}

TEST(MeshFailure, NamesTheLostRankByItsPlaceToAll) {
  struct Case {
    std::vector<MeshDim> mesh;
    std::string rank;
  };
  for (const auto& [mesh, rank] :
       {Case{{{"pipe", 2}, {"shard", 2}}, "rank 3 (pipe 1, shard 1)"},
        Case{{{"replicate", 2}, {"shard", 2}}, "rank 3 (replicate 1, shard 1)"},
        Case{{{"pipe", 2}, {"shard", 1}, {"tensor", 2}}, "rank 3 (pipe 1, shard 0, tensor 1)"},
        Case{{{"shard", 4}}, "rank 3"}, Case{{}, "rank 3"}}) {
    const Told told = lose_rank_3(mesh);
    EXPECT_EQ(told.by_run, rank + ": lost");
    EXPECT_EQ(told.to_peers, std::vector<std::string>(3, rank + ": lost"));
  }
}

/// A call that differs on rank 3 (the `odd` one), and the job's error.
struct Difference {
  std::function<void(World&, ShardedModel&, bool odd)> act;
  std::string text;
};

void submit(World& world, const std::string& label) {
  const Channel channel = world.reduce_channel();
  channel.communicator.submit(Batch{label}, channel.stream);
  channel.stream.wait();
}

std::vector<Difference> differences() {
  const auto split = [](World& world, const GroupOf& group_of, const char* name) {
    (void)world.split(world.gather_channel(), group_of, name);
  };
  const GroupOf pairs = [](int rank) { return rank / 2; };
  const GroupOf others = [](int rank) { return rank % 2; };
  return {
      {[](World& world, ShardedModel&, bool odd) { submit(world, odd ? "b" : "a"); },
       "rank 3 (pipe 1, shard 1) issued batch \"b\" where rank 0 (pipe 0, shard 0) issued batch"},
      {[=](World& world, ShardedModel&, bool odd) { split(world, pairs, odd ? "b" : "a"); },
       "rank 3 (pipe 1, shard 1) splits off \"b\" where rank 0 (pipe 0, shard 0) splits off"},
      {[=](World& world, ShardedModel&, bool odd) { split(world, odd ? others : pairs, "a"); },
       "rank 3 (pipe 1, shard 1) puts rank 1 (pipe 0, shard 1) in group 1, but rank 0 (pipe 0, "},
      {[=](World& world, ShardedModel&, bool odd) {
         odd ? split(world, pairs, "a") : world.barrier();
       },
       "rank 3 (pipe 1, shard 1) splits off \"a\" where rank 0 (pipe 0, shard 0) exchanges texts"},
      {[](World&, ShardedModel& model, bool odd) {
         (void)model.add_unit("first", {{"w", {4}}}, {.pipe = 0});
         (void)model.add_unit(odd ? "b" : "a", {{"w", {4}}}, {.pipe = 1});
         model.materialize(init::constant(0.0F));
       },
       "on rank 3 (pipe 1, shard 1); make every rank run the same program"},
  };
}

TEST(MeshFailure, NamesARankThatDoesSomethingElseByItsPlace) {
  for (const auto& difference : differences()) {
    try {
      run_ranks(4, [&](World& world) {
        ShardedModel model{world,
                           {.strategy = Strategy::zero3, .mesh = {{"pipe", 2}, {"shard", 2}}}};
        difference.act(world, model, world.rank() == 3);
      });
      ADD_FAILURE() << difference.text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(difference.text));
    }
  }
}

}  // namespace
}  // namespace tessera::mesh_failure_test
