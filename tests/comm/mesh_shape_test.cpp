// Named dimensions of ranks, without ranks.
#include "tessera/world/mesh_shape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tessera/base/error.hpp"

namespace tessera::mesh_shape_test {
namespace {

using Dims = std::vector<MeshDim>;
using Ranks = std::vector<int>;
using Names = std::vector<std::string_view>;

TEST(MeshShape, RanksNextToEachOtherAreNeighboursAlongTheLastDimension) {
  const MeshShape mesh{{{"replicate", 2}, {"shard", 4}}};
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(mesh.to_string(), "replicate 2 x shard 4");
  EXPECT_EQ(mesh.coordinates_of(6), (Ranks{1, 2}));
  EXPECT_EQ(mesh.index("replicate", 6), 1);
  EXPECT_EQ(mesh.index("shard", 6), 2);
  EXPECT_EQ(mesh.along({"shard"}).members(6), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(mesh.along({"replicate"}).members(6), (Ranks{2, 6}));
  EXPECT_EQ(mesh.along({"shard"}).name(), "shard");

  const MeshShape other{{{"shard", 4}, {"replicate", 2}}};
  EXPECT_NE(mesh, other);
  EXPECT_EQ(other.along({"shard"}).members(6), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(other.along({"replicate"}).members(6), (Ranks{6, 7}));
}

TEST(MeshShape, OfThreeDimensionsHasGroupsAlongAnyTwo) {
  const MeshShape mesh{{{"replicate", 2}, {"shard", 3}, {"tensor", 2}}};
  EXPECT_EQ(mesh.coordinates_of(7), (Ranks{1, 0, 1}));
  EXPECT_EQ(mesh.along({"replicate", "tensor"}).members(7), (Ranks{0, 1, 6, 7}));
  EXPECT_EQ(mesh.along({"tensor", "replicate"}).members(7), (Ranks{0, 1, 6, 7}));
  EXPECT_EQ(mesh.along({"tensor", "replicate"}).name(), "replicate x tensor");
  EXPECT_EQ(mesh.along({"replicate", "shard"}).members(7), (Ranks{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(mesh.data_ranks(), 6);
  for (int rank = 0; rank < 12; ++rank) { EXPECT_EQ(mesh.data_index(rank), rank / 2); }
}

TEST(MeshShape, RanksOfOneDataIndexDifferAlongTensorAndPipeAlone) {
  const MeshShape mesh{{{"pipe", 2}, {"shard", 3}, {"tensor", 2}, {"replicate", 2}}};
  Ranks places;
  for (int rank = 0; rank < mesh.ranks(); ++rank) { places.push_back(mesh.data_index(rank)); }
  EXPECT_EQ(places, (Ranks{0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5,  //
                           0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5}));
}

TEST(MeshShape, ADimensionThatIsNotNamedHasSizeOne) {
  const MeshShape mesh{{{"shard", 4}}};
  EXPECT_EQ(mesh.size("shard"), 4);
  EXPECT_EQ(mesh.size("replicate"), 1);
  EXPECT_EQ(mesh.index("pipe", 3), 0);
  EXPECT_EQ(mesh.along({"tensor"}).members(3), (Ranks{3}));
  EXPECT_EQ(mesh.along({"tensor"}).count(), 4);
  EXPECT_EQ(mesh.data_ranks(), 4);
  EXPECT_EQ((MeshShape{{{"tensor", 2}, {"pipe", 3}}}).data_ranks(), 1);
}

/// Every mesh with the dimensions `names` whose sizes are from 1 to 3.
std::vector<MeshShape> meshes_of(const Names& names) {
  std::vector<Dims> all{{}};
  for (const std::string_view name : names) {
    std::vector<Dims> longer;
    for (const Dims& dims : all) {
      for (const int size : {1, 2, 3}) {
        longer.push_back(dims);
        longer.back().push_back({std::string{name}, size});
      }
    }
    all = longer;
  }
  std::vector<MeshShape> meshes;
  for (const Dims& dims : all) { meshes.emplace_back(dims); }
  return meshes;
}

/// Expects the groups along `names` to contain each rank once, in order, and the ranks of a group
/// to differ in no other coordinate.
void expect_partition(const MeshShape& mesh, const Names& names) {
  const MeshGroups groups = mesh.along(names);
  ASSERT_EQ(groups.size() * groups.count(), mesh.ranks());
  const Ranks all = groups.groups();
  ASSERT_EQ(std::ssize(all), mesh.ranks());
  std::set<std::pair<int, int>> places;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int group = groups.group_of(rank);
    ASSERT_EQ(all[static_cast<std::size_t>(rank)], group);
    const int index = groups.index_of(rank);
    ASSERT_TRUE(places.emplace(group, index).second);
    ASSERT_TRUE(group >= 0 && group < groups.count() && index >= 0 && index < groups.size());
    const Ranks members = groups.members(rank);
    ASSERT_EQ(std::ssize(members), groups.size());
    ASSERT_EQ(members[static_cast<std::size_t>(index)], rank);
    ASSERT_EQ(std::ranges::adjacent_find(members, std::greater_equal{}), members.end());
    for (const int member : members) {
      ASSERT_EQ(groups.group_of(member), group);
      for (const MeshDim& dim : mesh.dims()) {
        const bool may_differ = std::ranges::find(names, dim.name) != names.end();
        ASSERT_TRUE(may_differ || mesh.index(dim.name, member) == mesh.index(dim.name, rank));
      }
    }
  }
}

// Small enough to try every case, so every case is tried.
TEST(MeshShape, GroupsAlongAnyDimensionsDivideTheRanks) {
  for (const MeshShape& mesh : meshes_of({"pipe", "replicate", "shard", "tensor"})) {
    SCOPED_TRACE(mesh.to_string());
    std::set<Ranks> seen;
    for (int rank = 0; rank < mesh.ranks(); ++rank) { seen.insert(mesh.coordinates_of(rank)); }
    ASSERT_EQ(std::ssize(seen), mesh.ranks());
    for (const Names& names : std::vector<Names>{{"replicate"},
                                                 {"shard"},
                                                 {"replicate", "shard"},
                                                 {"pipe", "tensor"},
                                                 {"replicate", "tensor"},
                                                 {"pipe", "replicate", "shard", "tensor"},
                                                 {}}) {
      ASSERT_NO_FATAL_FAILURE(expect_partition(mesh, names));
    }
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) { return error.what(); }
  return "nothing";
}

TEST(MeshShape, IsRefusedWithAdviceIfImpossible) {
  struct Case {
    Dims dims;
    std::string text;
  };
  const std::vector<Case> cases{
      {{}, "mesh: no dimension is given: give each one's name and size, such as {\"shard\", 4}"},
      {{{"shards", 4}},
       "mesh: 'shards' is not a dimension: choose among replicate, shard, tensor, pipe"},
      {{{"", 4}}, "mesh: '' is not a dimension: choose among replicate, shard, tensor, pipe"},
      {{{"shard", 2}, {"replicate", 2}, {"shard", 2}},
       "mesh: dimension 'shard' is given twice: give each dimension once"},
      {{{"replicate", 2}, {"shard", 0}},
       "mesh: dimension 'shard' has size 0: give the number of ranks along it, 1 or more"},
      {{{"replicate", -2}},
       "mesh: dimension 'replicate' has size -2: give the number of ranks along it, 1 or more"},
      {{{"replicate", 65536}, {"shard", 32768}},
       "mesh: replicate 65536 x shard 32768 has more than 2^31 - 1 ranks: choose sizes whose "
       "product is that of the job"},
  };
  for (const auto& [dims, text] : cases) {
    EXPECT_EQ(refusal([&] { MeshShape{dims}; }), text);
  }
  EXPECT_EQ(refusal([] { require_ranks(MeshShape{{{"replicate", 2}, {"shard", 3}}}, 8); }),
            "mesh replicate 2 x shard 3 has 6 ranks, but the job has 8: choose sizes whose product "
            "is 8");
  EXPECT_EQ(refusal([] { require_ranks(MeshShape{{{"replicate", 2}, {"shard", 4}}}, 8); }),
            "nothing");
}

TEST(MeshShape, UnanswerableQueriesAreRefused) {
  const MeshShape mesh{{{"replicate", 2}, {"shard", 3}}};
  const std::string unknown =
      "mesh: 'data' is not a dimension: choose among replicate, shard, tensor, pipe";
  EXPECT_EQ(refusal([&] { (void)mesh.size("data"); }), unknown);
  EXPECT_EQ(refusal([&] { (void)mesh.along({"shard", "data"}); }), unknown);
  EXPECT_EQ(refusal([&] { (void)mesh.along({"shard", "shard"}); }),
            "mesh: dimension 'shard' is given twice: give each dimension once");
  EXPECT_THROW((void)mesh.index("shard", 6), ContractError);
  EXPECT_THROW((void)mesh.index("shard", -1), ContractError);
}

}  // namespace
}  // namespace tessera::mesh_shape_test
