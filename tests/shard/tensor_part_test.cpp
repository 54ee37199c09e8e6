// The part of a parameter on each rank along `tensor`, against a reference that looks up every
// element's owner.
#include "tessera/shard/tensor_part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera::tensor_part_test {
namespace {

using Elements = std::vector<std::int64_t>;

/// A parameter and its cut.
struct Parameter {
  std::vector<std::int64_t> dims;
  TensorCut cut;

  [[nodiscard]] std::string text() const {
    return Shape{dims}.to_string() + " along " + std::to_string(cut.dim) + " in granules of " +
           std::to_string(cut.granule) + ", sections " + std::to_string(cut.sections) + ", lead " +
           std::to_string(cut.lead);
  }
  [[nodiscard]] TensorPart part(int rank, int ranks) const {
    return {Shape{dims}, cut, {rank, ranks}};
  }
  [[nodiscard]] std::int64_t section() const {
    return dims[static_cast<std::size_t>(cut.dim)] / (cut.lead + cut.sections - 1);
  }
};

/// The rank that owns a granule: granules are distributed in order, as evenly as possible.
int owner_of_granule(std::int64_t granule, std::int64_t granules, int ranks) {
  int owner = 0;
  while (granules * (owner + 1) / ranks <= granule) { ++owner; }
  return owner;
}

/// The elements of the whole parameter by rank, each list in ascending order.
std::vector<Elements> dealt_out(const Parameter& parameter, int ranks) {
  std::int64_t inner = 1;
  for (std::size_t d = static_cast<std::size_t>(parameter.cut.dim) + 1; d < parameter.dims.size();
       ++d) {
    inner *= parameter.dims[d];
  }
  const std::int64_t extent = parameter.dims[static_cast<std::size_t>(parameter.cut.dim)];
  const std::int64_t granules =
      (parameter.section() + parameter.cut.granule - 1) / parameter.cut.granule;
  std::vector<Elements> of_rank(static_cast<std::size_t>(ranks));
  for (std::int64_t e = 0; e < Shape{parameter.dims}.elems(); ++e) {
    const std::int64_t lead = parameter.cut.lead;
    const std::int64_t index = e / inner % extent;
    const std::int64_t granule = index < lead * parameter.section()
                                     ? index / (lead * parameter.cut.granule)
                                     : index % parameter.section() / parameter.cut.granule;
    const int owner = owner_of_granule(granule, granules, ranks);
    of_rank[static_cast<std::size_t>(owner)].push_back(e);
  }
  return of_rank;
}

/// Parameters of one to three dimensions, possibly empty.
Parameter random_parameter(std::mt19937& random) {
  const auto up_to = [&random](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>{0, most}(random);
  };
  Parameter parameter;
  const std::int64_t dims = 1 + up_to(2);
  parameter.cut.dim = static_cast<int>(up_to(dims - 1));
  parameter.cut.sections = 1 + static_cast<int>(up_to(2));
  parameter.cut.granule = 1 + up_to(4);
  parameter.cut.lead = 1 + up_to(1) * up_to(3);
  for (std::int64_t d = 0; d < dims; ++d) { parameter.dims.push_back(up_to(9)); }
  std::int64_t& extent = parameter.dims[static_cast<std::size_t>(parameter.cut.dim)];
  if (parameter.cut.sections > 1 || parameter.cut.lead > 1) {
    extent *= (parameter.cut.lead + parameter.cut.sections - 1) * parameter.cut.granule;
  } else {
    extent += up_to(9);
  }
  return parameter;
}

class Parts : public testing::Test {
 protected:
  /// Calls `check(parameter, ranks)` for random parameters and 1 to 9 ranks.
  template <class Check>
  void for_random_cuts(const Check& check) {
    std::mt19937 random{20};
    for (int i = 0; i < 150 && !HasFailure(); ++i) {
      const Parameter parameter = random_parameter(random);
      for (int ranks = 1; ranks <= 9; ++ranks) {
        SCOPED_TRACE(parameter.text() + " over " + std::to_string(ranks) + " ranks");
        check(parameter, ranks);
      }
    }
  }
};

TEST_F(Parts, HaveEachElementOnceAndRunsThatAscend) {
  for_random_cuts([](const Parameter& parameter, int ranks) {
    const std::vector<Elements> expected = dealt_out(parameter, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const TensorPart part = parameter.part(rank, ranks);
      Elements found;
      std::int64_t next = 0;
      part.for_each_run({0, part.elems()}, [&](const Range& whole, std::int64_t at) {
        EXPECT_EQ(at, next);
        EXPECT_GT(whole.elems, 0);
        next += whole.elems;
        for (std::int64_t e = whole.first; e < whole.end(); ++e) { found.push_back(e); }
      });
      EXPECT_EQ(found, expected[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(part.elems(), std::ssize(found));
      EXPECT_EQ(part.elements().elems(), part.elems());
    }
  });
}

TEST_F(Parts, ListTheElementsOfAnyRange) {
  std::mt19937 random{21};
  for_random_cuts([&random](const Parameter& parameter, int ranks) {
    const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const TensorPart part = parameter.part(rank, ranks);
    const Elements expected = dealt_out(parameter, ranks)[static_cast<std::size_t>(rank)];
    const auto some = [&](std::int64_t most) {
      return std::uniform_int_distribution<std::int64_t>{0, most}(random);
    };
    const std::int64_t first = some(part.elems());
    const Range local{first, some(part.elems() - first)};
    std::vector<Range> runs;
    for (std::int64_t i = local.first; i < local.end(); ++i) {
      runs.push_back({expected[static_cast<std::size_t>(i)], 1});
    }
    EXPECT_EQ(part.elements(local), Ranges{runs});
    EXPECT_THROW((void)part.elements({local.first, part.elems() + 1}), ContractError);
  });
}

// Keys for random numbers: they must not repeat within a parameter.
TEST_F(Parts, NumberEveryElementOnce) {
  for_random_cuts([](const Parameter& parameter, int ranks) {
    std::set<std::int64_t> numbers;
    for (int rank = 0; rank < ranks; ++rank) {
      const TensorPart part = parameter.part(rank, ranks);
      for (std::int64_t i = 0; i < part.elems(); ++i) { numbers.insert(part.elems_before() + i); }
    }
    const std::int64_t elems = Shape{parameter.dims}.elems();
    EXPECT_EQ(std::ssize(numbers), elems);
    if (elems > 0) { EXPECT_EQ(*numbers.rbegin(), elems - 1); }
  });
}

TEST_F(Parts, DifferByAGranuleAtMostAndOneRankOwnsTheWhole) {
  for_random_cuts([](const Parameter& parameter, int ranks) {
    std::vector<std::int64_t> granules;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto dims = parameter.part(rank, ranks).shape().dims();
      const std::int64_t extent = dims[static_cast<std::size_t>(parameter.cut.dim)];
      const std::int64_t each = parameter.cut.granule;
      const std::int64_t sections = parameter.cut.lead + parameter.cut.sections - 1;
      granules.push_back((extent / sections + each - 1) / each);
    }
    const auto [least, most] = std::ranges::minmax(granules);
    EXPECT_LE(most - least, 1);
    EXPECT_EQ(parameter.part(0, 1).shape(), Shape{parameter.dims});
  });
}

/// Columns of each rank's part of a matrix whose element (r, c) is 100 r + c.
Elements columns_of(const Parameter& parameter, int rank, int ranks) {
  Elements columns;
  const TensorPart part = parameter.part(rank, ranks);
  part.for_each_run({0, part.shape().dims()[1]}, [&](const Range& whole, std::int64_t /*at*/) {
    for (std::int64_t e = whole.first; e < whole.end(); ++e) { columns.push_back(e); }
  });
  return columns;
}

TEST(SectionsOfAPart, AreQueriesThenKeysThenValuesOfItsOwnHeads) {
  // 3 heads of 2 columns: q 0..5, k 6..11, v 12..17.
  const Parameter qkv{{4, 18}, {.dim = 1, .granule = 2, .sections = 3}};
  EXPECT_EQ(columns_of(qkv, 0, 2), (Elements{0, 1, 6, 7, 12, 13}));
  EXPECT_EQ(columns_of(qkv, 1, 2), (Elements{2, 3, 4, 5, 8, 9, 10, 11, 14, 15, 16, 17}));
  EXPECT_EQ(qkv.part(1, 2).first_index(), 2);
}

TEST(SectionsOfAPart, AreTheQueriesThatShareAHeadOfKeys) {
  // 4 query heads of 2 columns: q 0..7; 2 heads of keys: k 8..11, v 12..15.
  const Parameter qkv{{4, 16}, {.dim = 1, .granule = 2, .sections = 3, .lead = 2}};
  EXPECT_EQ(columns_of(qkv, 0, 2), (Elements{0, 1, 2, 3, 8, 9, 12, 13}));
  EXPECT_EQ(columns_of(qkv, 1, 2), (Elements{4, 5, 6, 7, 10, 11, 14, 15}));
}

TEST(SectionsOfAPart, AreTheGateThenTheValueOfSwiGLU) {
  const Parameter swiglu{{3, 10}, {.dim = 1, .sections = 2}};
  EXPECT_EQ(columns_of(swiglu, 0, 3), (Elements{0, 5}));
  EXPECT_EQ(columns_of(swiglu, 1, 3), (Elements{1, 2, 6, 7}));
  EXPECT_EQ(columns_of(swiglu, 2, 3), (Elements{3, 4, 8, 9}));
}

TEST(ACut, ThatDoesNotSuitTheShapeIsRefused) {
  struct Refused {
    Parameter parameter;
    const char* why;
  };
  const std::vector<Refused> all{
      {{{4, 6}, {.dim = 2}}, "has no dimension 2 to be cut along"},
      {{{4, 6}, {.dim = -1}}, "has no dimension -1"},
      {{{}, {}}, "has no dimension 0"},
      {{{4, 7}, {.dim = 1, .sections = 2}}, "cannot be cut in 2 sections of whole granules of 1"},
      {{{4, 12}, {.dim = 1, .granule = 4, .sections = 2}}, "whole granules of 4"},
      {{{4}, {.granule = 0}}, "granules of 0"},
      {{{4}, {.sections = 0}}, "0 sections"}};
  for (const Refused& refused : all) {
    try {
      (void)refused.parameter.part(0, 2);
      ADD_FAILURE() << refused.parameter.text() << " is taken";
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(refused.why));
    }
  }
  EXPECT_THROW((void)(Parameter{{4}, {}}.part(2, 2)), ContractError);
  EXPECT_THROW((void)(Parameter{{4}, {}}.part(-1, 2)), ContractError);
}

// ------------------------------------------------------------------------------- layouts of parts

std::vector<ParameterSpec> block() {
  return {
      {.name = "qkv", .shape = {5, 18}, .cut = TensorCut{.dim = 1, .granule = 2, .sections = 3}},
      {.name = "norm", .shape = {11}, .tensor_gradient = TensorGradient::part},
      {.name = "table", .shape = {7, 3}, .room = 30, .cut = TensorCut{}},
      {.name = "bias", .shape = {5}},
      {.name = "frozen", .shape = {9}, .trainable = false, .cut = TensorCut{}}};
}

UnitLayout laid_out(int rank, int ranks, int shards = 2) {
  return UnitLayout::make(block(), {.tensor = {rank, ranks}}, shards);
}

const SegmentLayout& segment_of(const UnitLayout& layout, std::size_t parameter) {
  return layout.segments()[layout.locate(parameter)->segment];
}

TEST(LayoutOfParts, KeepsWhatIsCutApartFromCopiesAndFromGradientsInParts) {
  const UnitLayout layout = laid_out(1, 3);
  EXPECT_EQ(layout.segments().size(), 4U);
  const std::vector<TensorKind> kinds{TensorKind::own, TensorKind::parts, TensorKind::own,
                                      TensorKind::copies, TensorKind::own};
  for (std::size_t p = 0; p < kinds.size(); ++p) {
    EXPECT_EQ(segment_of(layout, p).tensor(), kinds[p]) << layout.specs()[p].name;
    EXPECT_EQ(segment_of(layout, p).trainable(), p != 4);
  }
  EXPECT_EQ(layout.locate(0)->segment, layout.locate(2)->segment);
}

TEST(LayoutOfParts, HoldsTheElementsOfAllRanksOnceAndTheRoomOnTheLastOne) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::int64_t cut_elems = 0;
    std::int64_t room = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const UnitLayout layout = laid_out(rank, ranks);
      EXPECT_EQ(layout.whole_elems(), 90 + 11 + 21 + 5 + 9);
      for (const SegmentLayout& segment : layout.segments()) {
        for (const Placement& placement : segment.placements()) {
          EXPECT_EQ(placement.elems, layout.part(placement.parameter).elems());
          if (!layout.specs()[placement.parameter].cut) { continue; }
          cut_elems += placement.elems;
          if (placement.parameter == 2) {
            room += std::max(placement.room, placement.elems);
            EXPECT_TRUE(placement.room == 0 || rank == ranks - 1);
          }
        }
      }
    }
    EXPECT_EQ(cut_elems, 90 + 21 + 9) << ranks;
    EXPECT_EQ(room, 30) << ranks;
  }
}

TEST(LayoutOfParts, OnOneRankEqualsAModelWithoutCuts) {
  std::vector<ParameterSpec> plain = block();
  for (ParameterSpec& spec : plain) {
    spec.cut = {};
    spec.tensor_gradient = TensorGradient::equal;
  }
  const UnitLayout expected = UnitLayout::make(plain, {}, 3);
  const UnitLayout found = laid_out(0, 1, 3);
  ASSERT_EQ(found.segments().size(), expected.segments().size());
  for (std::size_t s = 0; s < expected.segments().size(); ++s) {
    EXPECT_EQ(found.segments()[s].tensor(), TensorKind::own);
    EXPECT_EQ(found.segments()[s].padded_elems(), expected.segments()[s].padded_elems());
  }
  for (std::size_t p = 0; p < plain.size(); ++p) {
    EXPECT_EQ(found.locate(p)->segment, expected.locate(p)->segment);
    EXPECT_EQ(found.locate(p)->first, expected.locate(p)->first);
    EXPECT_EQ(found.part(p).shape(), plain[p].shape);
  }
}

TEST(LayoutOfParts, IsDescribedAlikeOnAllRanksAndShowsItsCuts) {
  const std::string text = laid_out(0, 3).describe();
  EXPECT_EQ(laid_out(2, 3).describe(), text);
  std::set<std::string> texts{text};
  for (const TensorCut& cut : {TensorCut{.dim = 1, .granule = 6, .sections = 3},
                               TensorCut{.dim = 1, .granule = 2}, TensorCut{.dim = 0}}) {
    std::vector<ParameterSpec> other = block();
    other[0].cut = cut;
    texts.insert(UnitLayout::make(other, {.tensor = {0, 3}}, 2).describe());
  }
  std::vector<ParameterSpec> equal = block();
  equal[1].tensor_gradient = TensorGradient::equal;
  texts.insert(UnitLayout::make(equal, {.tensor = {0, 3}}, 2).describe());
  EXPECT_EQ(texts.size(), 5U);
}

TEST(LayoutOfParts, WithoutSegmentsHasTheSameParametersAndNoPlaceForThem) {
  const UnitLayout layout = laid_out(1, 2).without_segments();
  EXPECT_TRUE(layout.segments().empty());
  EXPECT_EQ(layout.specs().size(), block().size());
  EXPECT_EQ(layout.whole_elems(), laid_out(0, 1).whole_elems());
  EXPECT_EQ(layout.parameter_elems(), 0);
  EXPECT_FALSE(layout.locate(0).has_value());
  EXPECT_EQ(layout.part(0).shape(), laid_out(1, 2).part(0).shape());
}

TEST(LayoutOfParts, RefusesWhatACutExcludes) {
  std::vector<ParameterSpec> in_parts{
      {.name = "w", .shape = {4}, .cut = TensorCut{}, .tensor_gradient = TensorGradient::part}};
  EXPECT_THROW((void)UnitLayout::make(in_parts, {}, 1), ContractError);
  std::vector<ParameterSpec> room{
      {.name = "w", .shape = {4, 4}, .room = 20, .cut = TensorCut{.dim = 1}}};
  EXPECT_THROW((void)UnitLayout::make(room, {}, 1), ContractError);
}

}  // namespace
}  // namespace tessera::tensor_part_test
