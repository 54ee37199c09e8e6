// The part of a segment that each rank of a mesh owns.
#include "engine/plan/shard_place.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tessera::test::shard_place_test {
namespace {

using engine::ShardPlace;
using Dims = std::vector<MeshDim>;

/// A unit of random parameters, some with room, in segments of two dtypes.
UnitLayout random_layout(std::mt19937& random, int ranks) {
  const auto draw = [&random](unsigned most) { return static_cast<std::int64_t>(random() % most); };
  std::vector<ParameterSpec> specs;
  const std::int64_t count = 1 + draw(5);
  for (std::int64_t p = 0; p < count; ++p) {
    ParameterSpec spec{"p" + std::to_string(p), {draw(300)}};
    if (draw(3) == 0) { spec.dtype = DType::bf16; }
    if (draw(4) == 0) { spec.room = draw(400); }
    specs.push_back(spec);
  }
  const std::int64_t align = draw(2) == 0 ? 64 : 256;
  return UnitLayout::make(specs, {.align_elems = align}, ranks);
}

/// The places of all ranks of `mesh`.
std::vector<ShardPlace> places(const MeshShape& mesh) {
  std::vector<ShardPlace> all;
  for (int rank = 0; rank < mesh.ranks(); ++rank) { all.emplace_back(mesh, rank); }
  return all;
}

/// Expects the ranks along `shard` to partition the segment, and the ranks along the other
/// dimensions to own the same part.
void expect_partition(const MeshShape& mesh, const SegmentLayout& segment) {
  const std::vector<ShardPlace> all = places(mesh);
  const MeshGroups shards = mesh.along({"shard"});
  std::vector<int> computed(static_cast<std::size_t>(mesh.data_ranks()));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const ShardPlace& mine = all[static_cast<std::size_t>(rank)];
    std::vector<Range> cut;
    std::int64_t pieces = 0;
    for (const int other : shards.members(rank)) {
      const Range kept = all[static_cast<std::size_t>(other)].kept(segment);
      cut.push_back(kept);
      for (const Piece& piece : segment.pieces(kept)) { pieces += piece.elems; }
    }
    // The parts are in order without gaps, so they form one range. Ranges refuses overlaps.
    ASSERT_EQ(Ranges{cut}, (Range{0, segment.padded_elems()}));
    std::int64_t elems = 0;
    for (const Placement& placement : segment.placements()) { elems += placement.elems; }
    ASSERT_EQ(pieces, elems);

    const Ranges owned = mine.kept(segment);
    for (const int copy : mesh.along({"replicate", "tensor", "pipe"}).members(rank)) {
      ASSERT_EQ(owned, all[static_cast<std::size_t>(copy)].kept(segment));
    }
    const Range normed = segment.shard(mine.normed_shard());
    ASSERT_EQ(owned.intersect(normed), normed) << "a rank norms what it owns";
    ++computed[static_cast<std::size_t>(mine.normed_shard())];
  }
  const int others = mesh.ranks() / mesh.data_ranks();
  ASSERT_EQ(computed, std::vector<int>(computed.size(), others)) << "each norm by one data rank";
}

TEST(ShardPlace, RanksAlongShardDivideEverySegmentAndCopiesOwnTheSame) {
  std::mt19937 random{11};
  for (const Dims& dims :
       {Dims{{"shard", 1}}, Dims{{"shard", 8}}, Dims{{"replicate", 5}},
        Dims{{"replicate", 2}, {"shard", 4}}, Dims{{"shard", 4}, {"replicate", 2}},
        Dims{{"replicate", 3}, {"shard", 3}}, Dims{{"replicate", 2}, {"shard", 3}, {"tensor", 2}},
        Dims{{"pipe", 2}, {"tensor", 2}, {"shard", 2}, {"replicate", 2}}}) {
    const MeshShape mesh{dims};
    SCOPED_TRACE(mesh.to_string());
    for (int i = 0; i < 40; ++i) {
      const UnitLayout layout = random_layout(random, mesh.data_ranks());
      for (const SegmentLayout& segment : layout.segments()) {
        ASSERT_NO_FATAL_FAILURE(expect_partition(mesh, segment)) << layout.describe();
      }
    }
  }
}

TEST(ShardPlace, KeepsNeighbouringShards) {
  const UnitLayout layout = UnitLayout::make({{"w", {1000}}}, {}, 8);
  const SegmentLayout& segment = layout.segments().front();
  const ShardPlace place{MeshShape{{{"replicate", 2}, {"shard", 4}}}, 6};
  EXPECT_EQ(place.ranks(), 4);
  EXPECT_EQ(place.kept_shards(), 2);
  EXPECT_EQ(place.data_ranks(), 8);
  EXPECT_EQ(place.kept(segment), (Range{4 * 128, 2 * 128}));
  EXPECT_EQ(place.normed_shard(), 5) << "the second copy takes the second shard of two";
}

}  // namespace
}  // namespace tessera::test::shard_place_test
