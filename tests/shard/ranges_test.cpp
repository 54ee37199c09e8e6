// The elements that a rank owns, as a list of ranges.
#include "tessera/shard/ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

#include "tessera/base/error.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera::ranges_test {
namespace {

using List = std::vector<Range>;
using Elements = std::set<std::int64_t>;

Elements elements_of(const Ranges& ranges) {
  Elements all;
  for (const Range& range : ranges) {
    for (std::int64_t e = range.first; e < range.end(); ++e) { all.insert(e); }
  }
  return all;
}

TEST(Ranges, AreTheSameListForTheSameElements) {
  const Ranges expected{List{{0, 3}, {5, 2}}};
  EXPECT_EQ(expected, (Ranges{List{{0, 1}, {1, 2}, {4, 0}, {5, 1}, {6, 1}, {9, 0}}}));
  EXPECT_EQ(expected.size(), 2U);
  EXPECT_EQ(expected.elems(), 5);
  EXPECT_EQ(*expected.begin(), (Range{0, 3}));
  EXPECT_EQ(Ranges{}, (Range{7, 0})) << "an empty range is an empty list";
  EXPECT_EQ((Ranges{List{{7, 4}}}), (Range{7, 4}));
  EXPECT_NE(expected, (Range{0, 5}));
  EXPECT_TRUE(Ranges{}.empty());
  EXPECT_FALSE(expected.empty());
}

TEST(Ranges, ThatOverlapOrDoNotAscendAreRefused) {
  for (const List& list : std::vector<List>{{{0, 2}, {1, 3}},
                                            {{4, 1}, {0, 1}},
                                            {{0, 3}, {1, 1}},
                                            {{-1, 2}},
                                            {{2, -1}},
                                            {{3, 2}, {3, 2}}}) {
    EXPECT_THROW(Ranges{list}, ContractError);
  }
  EXPECT_THROW((Ranges{Range{-1, 1}}), ContractError);
}

TEST(Ranges, IntersectAsSetsDo) {
  std::mt19937 random{7};
  const auto draw = [&random](unsigned most) { return static_cast<std::int64_t>(random() % most); };
  const auto some = [&] {
    List list;
    for (std::int64_t at = draw(5); at < 40; at += draw(5)) {
      list.push_back({at, draw(7)});
      at += list.back().elems;
    }
    return Ranges{list};
  };
  for (int i = 0; i < 500; ++i) {
    const Ranges a = some();
    const Ranges b = some();
    Elements common;
    std::ranges::set_intersection(elements_of(a), elements_of(b),
                                  std::inserter(common, common.end()));
    EXPECT_EQ(elements_of(a.intersect(b)), common);
    EXPECT_EQ(a.intersect(b), b.intersect(a));
    EXPECT_EQ(a.intersect(a), a);
    EXPECT_EQ(a.intersect(b).elems(), std::ssize(common));
  }
}

// The columns of a matrix that two ranks along `tensor` would own: as many ranges as rows.
TEST(Ranges, DescribeACutAlongTheSecondDimension) {
  constexpr std::int64_t rows = 5;
  constexpr std::int64_t columns = 8;
  const UnitLayout layout = UnitLayout::make({{"bias", {3}}, {"weight", {rows, columns}}}, {}, 2);
  const SegmentLayout& segment = layout.segments().front();
  const std::int64_t weight = layout.locate(1)->first;
  std::vector<Ranges> halves;
  for (const std::int64_t half : {0, 1}) {
    List list;
    for (std::int64_t row = 0; row < rows; ++row) {
      list.push_back({weight + row * columns + half * columns / 2, columns / 2});
    }
    halves.emplace_back(list);
    EXPECT_EQ(halves.back().size(), 5U);
    std::int64_t at = 0;
    for (const Piece& piece : segment.pieces(halves.back())) {
      EXPECT_EQ(piece.parameter, 1U);
      EXPECT_EQ(piece.first_in_parameter, list[static_cast<std::size_t>(at / 4)].first - weight);
      EXPECT_EQ(piece.first_in_shard, at);
      at += piece.elems;
    }
    EXPECT_EQ(at, rows * columns / 2);
  }
  EXPECT_TRUE(halves[0].intersect(halves[1]).empty());
  // The intersection of both cuts: the columns of the rank's shard.
  std::int64_t elems = 0;
  for (const Ranges& half : halves) {
    for (int rank = 0; rank < 2; ++rank) { elems += half.intersect(segment.shard(rank)).elems(); }
  }
  EXPECT_EQ(elems, rows * columns);
}

}  // namespace
}  // namespace tessera::ranges_test
