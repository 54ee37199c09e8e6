#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera::segment_layout_test {
namespace {

constexpr std::int64_t kNobody = -1;

std::vector<Placement> lay_end_to_end(const std::vector<std::int64_t>& sizes) {
  std::vector<Placement> placements;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    placements.push_back({i, first, sizes[i]});
    first = (first + sizes[i] + kAlignElems - 1) / kAlignElems * kAlignElems;
  }
  return placements;
}

SegmentLayout segment_of(const std::vector<std::int64_t>& sizes, int ranks) {
  std::vector<Placement> placements = lay_end_to_end(sizes);
  const std::int64_t elems =
      placements.empty() ? 0 : placements.back().first + placements.back().elems;
  return {SegmentDTypes{}, true, std::move(placements), elems, ranks};
}

// The parameter that owns each padded element, computed from the pieces.
std::vector<std::int64_t> owners_from_pieces(const SegmentLayout& segment, int ranks) {
  std::vector<std::int64_t> owners(static_cast<std::size_t>(segment.padded_elems()), kNobody);
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Piece& piece : segment.pieces(rank)) {
      for (std::int64_t e = 0; e < piece.elems; ++e) {
        const std::int64_t at = segment.shard(rank).first + piece.first_in_shard + e;
        auto& owner = owners[static_cast<std::size_t>(at)];
        EXPECT_EQ(owner, kNobody) << "element " << at << " is in two pieces";
        owner = static_cast<std::int64_t>(piece.parameter);
      }
    }
  }
  return owners;
}

std::vector<std::int64_t> owners_from_placements(const SegmentLayout& segment) {
  std::vector<std::int64_t> owners(static_cast<std::size_t>(segment.padded_elems()), kNobody);
  for (const Placement& placement : segment.placements()) {
    for (std::int64_t e = 0; e < placement.elems; ++e) {
      owners[static_cast<std::size_t>(placement.first + e)] =
          static_cast<std::int64_t>(placement.parameter);
    }
  }
  return owners;
}

void expect_pieces_cover_each_parameter_in_order(const SegmentLayout& segment, int ranks) {
  std::vector<std::int64_t> covered(segment.placements().size(), 0);
  std::size_t last_parameter = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t end_in_shard = 0;
    for (const Piece& piece : segment.pieces(rank)) {
      ASSERT_GT(piece.elems, 0);
      ASSERT_GE(piece.first_in_shard, end_in_shard);
      ASSERT_LE(piece.first_in_shard + piece.elems, segment.shard_elems());
      ASSERT_GE(piece.parameter, last_parameter);
      ASSERT_EQ(piece.first_in_parameter, covered[piece.parameter]);
      covered[piece.parameter] += piece.elems;
      end_in_shard = piece.first_in_shard + piece.elems;
      last_parameter = piece.parameter;
    }
  }
  for (const Placement& placement : segment.placements()) {
    ASSERT_EQ(covered[placement.parameter], placement.elems);
  }
}

void expect_padding_is_the_complement(const SegmentLayout& segment) {
  std::vector<std::int64_t> owners = owners_from_placements(segment);
  std::int64_t end = -1;  // ranges do not touch: as few as possible
  for (const Range& range : segment.padding()) {
    ASSERT_GT(range.elems, 0);
    ASSERT_GT(range.first, end);
    end = range.first + range.elems;
    for (std::int64_t e = range.first; e < end; ++e) {
      auto& owner = owners.at(static_cast<std::size_t>(e));
      ASSERT_EQ(owner, kNobody) << "element " << e << " is padding and belongs to a parameter";
      owner = 0;
    }
  }
  for (std::size_t e = 0; e < owners.size(); ++e) {
    ASSERT_NE(owners[e], kNobody) << "element " << e << " is neither parameter nor padding";
  }
}

void expect_sound(const SegmentLayout& segment, int ranks, std::int64_t align = kAlignElems) {
  const std::int64_t shard = segment.shard_elems();
  ASSERT_EQ(shard % align, 0);
  ASSERT_EQ(segment.padded_elems(), shard * ranks);
  ASSERT_GE(segment.padded_elems(), segment.elems());
  ASSERT_LT(shard * ranks - segment.elems(), ranks * align + ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(segment.shard(rank), (Range{rank * shard, shard}));
  }
  ASSERT_EQ(owners_from_pieces(segment, ranks), owners_from_placements(segment));
  expect_pieces_cover_each_parameter_in_order(segment, ranks);
  expect_padding_is_the_complement(segment);
}

// Sizes small enough to test every case.
TEST(SegmentLayout, EveryElementHasOneOwner) {
  for (std::int64_t elems = 0; elems <= 3 * kAlignElems + 2; ++elems) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      SCOPED_TRACE(testing::Message() << elems << " elements, " << ranks << " ranks");
      ASSERT_NO_FATAL_FAILURE(expect_sound(segment_of({elems}, ranks), ranks));
    }
  }
}

TEST(SegmentLayout, EveryElementHasOneOwnerAmongThreeParameters) {
  const std::vector<std::int64_t> edges{0, 1, 63, 64, 65, 200};
  for (const std::int64_t a : edges) {
    for (const std::int64_t b : edges) {
      for (const std::int64_t c : edges) {
        for (int ranks = 1; ranks <= 9; ++ranks) {
          SCOPED_TRACE(testing::Message()
                       << a << ", " << b << ", " << c << " elements, " << ranks << " ranks");
          ASSERT_NO_FATAL_FAILURE(expect_sound(segment_of({a, b, c}, ranks), ranks));
        }
      }
    }
  }
}

TEST(SegmentLayout, ShardIsAnEqualPartRoundedUp) {
  EXPECT_EQ(segment_of({64}, 1).shard_elems(), 64);
  EXPECT_EQ(segment_of({65}, 1).shard_elems(), 128);
  EXPECT_EQ(segment_of({256}, 4).shard_elems(), 64);
  EXPECT_EQ(segment_of({257}, 4).shard_elems(), 128);
  EXPECT_EQ(segment_of({3}, 1024).shard_elems(), 64);
}

TEST(SegmentLayout, AWiderAlignmentHoldsForParametersAndShards) {
  for (const std::int64_t align : {64, 128, 192, 256}) {
    const LayoutOptions options{.align_elems = align};
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const auto layout = UnitLayout::make({{"a", {1}}, {"b", {0}}, {"c", {align + 1}}, {"d", {3}}},
                                           options, ranks);
      const SegmentLayout& segment = layout.segments().front();
      for (const Placement& placement : segment.placements()) {
        EXPECT_EQ(placement.first % align, 0);
      }
      EXPECT_EQ(segment.elems(), 3 * align + 3);
      EXPECT_EQ(segment.shard_elems(), (segment.elems() / ranks / align + 1) * align);
      ASSERT_NO_FATAL_FAILURE(expect_sound(segment, ranks, align));
    }
  }
  for (const std::int64_t align : {0, -64, 32, 100}) {
    EXPECT_THROW((void)UnitLayout::make({}, {.align_elems = align}, 1), ContractError) << align;
  }
}

TEST(SegmentLayout, AnEmptyLayoutNeedsNoMemory) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    EXPECT_EQ(segment_of({}, ranks).padded_elems(), 0);
    EXPECT_EQ(segment_of({0, 0}, ranks).padded_elems(), 0);
    EXPECT_TRUE(segment_of({0}, ranks).padding().empty());
    EXPECT_TRUE(segment_of({0}, ranks).pieces(0).empty());
  }
}

TEST(SegmentLayout, RanksBeyondTheElementsHoldOnlyPadding) {
  const SegmentLayout segment = segment_of({100}, 5);
  EXPECT_EQ(segment.pieces(0).size(), 1U);
  EXPECT_EQ(segment.pieces(1).front().elems, 36);
  for (int rank = 2; rank < 5; ++rank) { EXPECT_TRUE(segment.pieces(rank).empty()); }
  EXPECT_EQ(segment.padding(), (Ranges{std::vector<Range>{{100, 220}}}));
}

TEST(SegmentLayout, AParameterIsCutWhereAShardEnds) {
  const SegmentLayout segment =
      segment_of({10, 150}, 2);  // at 0 and 64; 214 elements, shards of 128
  const std::vector<Piece> lower = segment.pieces(0);
  const std::vector<Piece> upper = segment.pieces(1);
  ASSERT_EQ(lower.size(), 2U);
  ASSERT_EQ(upper.size(), 1U);
  EXPECT_EQ(lower[1].first_in_shard, 64);
  EXPECT_EQ(lower[1].elems, 64);
  EXPECT_EQ(upper[0].parameter, 1U);
  EXPECT_EQ(upper[0].first_in_parameter, 64);
  EXPECT_EQ(upper[0].first_in_shard, 0);
  EXPECT_EQ(upper[0].elems, 86);
  EXPECT_EQ(segment.padding(), (Ranges{std::vector<Range>{{10, 54}, {214, 42}}}));
}

TEST(SegmentLayout, CountsBeyondThirtyTwoBits) {
  const std::int64_t elems = 70'000'000'000;
  const SegmentLayout segment = segment_of({elems}, 1024);
  EXPECT_EQ(segment.shard_elems(), 68'359'424);  // 68359375 rounded up to 64
  EXPECT_EQ(segment.pieces(1023).front().first_in_parameter, 1023 * segment.shard_elems());
  EXPECT_EQ(segment.pieces(1023).front().elems, elems - 1023 * segment.shard_elems());
}

TEST(SegmentLayout, RefusesInvalidLayouts) {
  const auto make = [](std::vector<Placement> placements, std::int64_t elems, int ranks) {
    return SegmentLayout{SegmentDTypes{}, true, std::move(placements), elems, ranks};
  };
  EXPECT_NO_THROW(make({{0, 0, 10}, {1, 64, 6}}, 70, 2));
  EXPECT_THROW(make({{0, 0, 10}}, 10, 0), ContractError);
  EXPECT_THROW(make({}, -1, 1), ContractError);
  EXPECT_THROW(make({{0, 1, 9}}, 10, 1), ContractError);               // not aligned
  EXPECT_THROW(make({{0, 0, 65}, {1, 64, 6}}, 70, 1), ContractError);  // overlap
  EXPECT_THROW(make({{0, 64, 6}, {1, 0, 6}}, 70, 1), ContractError);   // order
  EXPECT_THROW(make({{0, 0, 10}, {1, 64, 7}}, 70, 1), ContractError);  // beyond the end
  EXPECT_THROW(make({}, std::numeric_limits<std::int64_t>::max() - 100, 2), ContractError);
  EXPECT_THROW((void)segment_of({10}, 2).pieces(2), ContractError);
  EXPECT_THROW((void)segment_of({10}, 2).pieces(-1), ContractError);
}

}  // namespace
}  // namespace tessera::segment_layout_test
