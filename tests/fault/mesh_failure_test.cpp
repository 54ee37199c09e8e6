// A rank of a model on a mesh is lost: every rank learns of it, with its place in the mesh.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::mesh_failure_test
