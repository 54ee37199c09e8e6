// Collectives of sub-meshes, over every kind of communicator.
#include "tessera/world/mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/rank_groups.hpp"
#include "support/rank_job.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::mesh_test {
namespace {

using test::complete;
using test::HostTensor;
using test::OnRanks;
using Dims = std::vector<MeshDim>;

class MeshConformance : public OnRanks {};

INSTANTIATE_TEST_SUITE_P(Ranks, MeshConformance,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(test::rank_counts({1, 2, 4, 6, 8}))),
                         test::rank_job_name);

/// Meshes of `ranks` ranks: of one dimension, of two in both orders, and of three.
std::vector<Dims> meshes_of(int ranks) {
  std::vector<Dims> all{{{"shard", ranks}}, {{"replicate", ranks}}};
  if (ranks % 2 == 0) {
    all.push_back({{"replicate", 2}, {"shard", ranks / 2}});
    all.push_back({{"shard", ranks / 2}, {"replicate", 2}});
  }
  if (ranks % 4 == 0) { all.push_back({{"replicate", ranks / 4}, {"shard", 2}, {"tensor", 2}}); }
  return all;
}

/// Expects a gather and a sum over the ranks of `sub` to move those ranks' test data.
void expect_moves(World& world, const SubMesh& sub) {
  constexpr std::int64_t n = 33;
  const std::vector<int> ranks = sub.ranks();
  ASSERT_EQ(std::ssize(ranks), sub.size());
  ASSERT_EQ(ranks[static_cast<std::size_t>(sub.index())], world.rank());
  const auto parts = test::tensors_of(ranks, DType::fp32, n);
  const auto mine = static_cast<std::size_t>(sub.index());

  HostTensor part = parts[mine];
  HostTensor whole{DType::fp32, n * sub.size(), -1.0};
  complete(world, sub.gather(), Batch{"gather"}.all_gather(part.view(), whole.view()));
  EXPECT_EQ(whole, test::concatenate(parts));

  HostTensor sum = parts[mine];
  complete(world, sub.reduce(), Batch{"sum"}.all_reduce(sum.view()));
  EXPECT_EQ(test::reduction_problem(sum, parts, ReduceOp::sum, test::sum_order()), "");
}

TEST_P(MeshConformance, EverySubMeshMovesItsRanksData) {
  run([](World& world) {
    for (const Dims& dims : meshes_of(world.size())) {
      const Mesh mesh{world, dims};
      SCOPED_TRACE(mesh.shape().to_string());
      expect_moves(world, mesh.along("shard"));
      expect_moves(world, mesh.along("replicate"));
      expect_moves(world, mesh.along("replicate", "shard"));
      expect_moves(world, mesh.along("tensor", "replicate"));
      EXPECT_EQ(mesh.along("shard").size(), mesh.size("shard"));
      EXPECT_EQ(mesh.along("shard").index(), mesh.index("shard"));
    }
  });
}

TEST_P(MeshConformance, MeshesOfAWorldShareItsCommunicators) {
  run([](World& world) {
    const Mesh whole{world, {{"shard", world.size()}}};
    EXPECT_EQ(&whole.along("shard").gather().communicator, &world.gather_channel().communicator);
    EXPECT_EQ(&whole.along("shard").reduce().communicator, &world.reduce_channel().communicator);
    if (world.size() % 2 != 0) { return; }
    const Dims dims{{"replicate", 2}, {"shard", world.size() / 2}};
    const SubMesh first = Mesh{world, dims}.along("replicate");
    const SubMesh second = Mesh{world, dims}.along("replicate");
    EXPECT_EQ(&first.gather().communicator, &second.gather().communicator);
    EXPECT_NE(&first.gather().communicator, &first.reduce().communicator);
    EXPECT_EQ(first.gather().stream.state(), world.gather_channel().stream.state());
  });
}

TEST(Mesh, OfAnotherNumberOfRanksIsRefused) {
  try {
    run_ranks(4, [](World& world) { Mesh{world, {{"replicate", 2}, {"shard", 4}}}; });
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("mesh replicate 2 x shard 4 has 8 ranks, but the "
                                                 "job has 4: choose sizes whose product is 4"));
  }
}

// A simulated rank has no others to ask: the mesh determines its sub-meshes.
TEST(Mesh, ASimulatedRankKnowsItsSubMeshes) {
  constexpr int kRanks = 1 << 20;
  const SimulatedRank rank{
      .rank = 1000, .ranks = kRanks, .backend = {DeviceKind::cpu, CommKind::mpi}};
  simulate_rank(rank, [](World& world) {
    const Mesh mesh{world, {{"replicate", kRanks / 16}, {"shard", 16}}};
    EXPECT_EQ(mesh.index("replicate"), 1000 / 16);
    EXPECT_EQ(mesh.along("shard").reduce().communicator.rank(), 1000 % 16);
    EXPECT_EQ(mesh.along("replicate").reduce().communicator.size(), kRanks / 16);
    EXPECT_EQ(mesh.along("shard").ranks().front(), 992);
  });
}

}  // namespace
}  // namespace tessera::mesh_test
