#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera::unit_layout_test {
namespace {

ParameterSpec tied(std::string name, Shape shape, TiedTo owner) {
  return {.name = std::move(name), .shape = std::move(shape), .tied_to = std::move(owner)};
}

TEST(UnitLayout, ParametersLieEndToEndInOrderOfDeclaration) {
  const auto layout = UnitLayout::make({{"weight", {3, 50}}, {"bias", {3}}, {"scale", {}}}, {}, 2);
  ASSERT_EQ(layout.segments().size(), 1U);
  const auto placements = layout.segments()[0].placements();
  ASSERT_EQ(placements.size(), 3U);
  EXPECT_EQ(placements[0].first, 0);
  EXPECT_EQ(placements[1].first, 192);  // 150 rounded up to 64
  EXPECT_EQ(placements[2].first, 256);
  EXPECT_EQ(placements[2].elems, 1);  // a scalar
  EXPECT_EQ(layout.segments()[0].elems(), 257);
  EXPECT_EQ(layout.parameter_elems(), 154);
}

// bf16 linear with an fp32 norm inside, a frozen matrix and a frozen fp32 vector.
TEST(UnitLayout, SegmentsComeInOrderOfFirstAppearance) {
  const auto layout = UnitLayout::make({{"a", {5}},
                                        {"frozen", {6}, false},
                                        {"norm", {7}, true, DType::fp32},
                                        {"b", {8}},
                                        {"frozen_norm", {9}, false, DType::fp32},
                                        {"frozen_too", {10}, false, DType::bf16}},
                                       {.compute = DType::bf16}, 3);
  ASSERT_EQ(layout.segments().size(), 4U);
  const auto expect_segment = [&](std::size_t s, DType dtype, bool trainable,
                                  std::vector<std::size_t> parameters) {
    const SegmentLayout& segment = layout.segments()[s];
    EXPECT_EQ(segment.dtypes().parameter, dtype);
    EXPECT_EQ(segment.trainable(), trainable);
    std::vector<std::size_t> found;
    for (const Placement& placement : segment.placements()) {
      found.push_back(placement.parameter);
    }
    EXPECT_EQ(found, parameters);
  };
  expect_segment(0, DType::bf16, true, {0, 3});
  expect_segment(1, DType::bf16, false, {1, 5});
  expect_segment(2, DType::fp32, true, {2});
  expect_segment(3, DType::fp32, false, {4});
}

TEST(UnitLayout, CompanionDtypesComeFromTheOptions) {
  const auto layout = UnitLayout::make(
      {{"a", {5}}}, {.compute = DType::fp16, .gradient = DType::bf16, .reduce = DType::fp32}, 1);
  const SegmentDTypes expected{.parameter = DType::fp16,
                               .gradient = DType::bf16,
                               .reduce = DType::fp32,
                               .master = DType::fp32};
  EXPECT_EQ(layout.segments()[0].dtypes(), expected);
}

TEST(UnitLayout, AliasesTakeNoSpaceAndCountWithTheirOwner) {
  const auto layout =
      UnitLayout::make({tied("head", {50257, 768}, {"root", "wte"}), {"bias", {3}}}, {}, 4);
  EXPECT_EQ(layout.parameter_elems(), 3);
  EXPECT_FALSE(layout.locate(0).has_value());
  ASSERT_TRUE(layout.locate(1).has_value());
  EXPECT_EQ(layout.locate(1)->first, 0);
  EXPECT_EQ(layout.find("head"), 0U);
}

TEST(UnitLayout, AUnitOfAliasesOrOfNothingHasNoSegments) {
  EXPECT_TRUE(UnitLayout::make({}, {}, 2).segments().empty());
  EXPECT_TRUE(UnitLayout::make({tied("head", {2}, {"root", "wte"})}, {}, 2).segments().empty());
}

TEST(UnitLayout, LocatesAndFinds) {
  const auto layout = UnitLayout::make({{"a", {65}}, {"frozen", {1}, false}, {"b", {2, 2}}}, {}, 2);
  EXPECT_EQ(layout.find("b"), 2U);
  EXPECT_EQ(layout.find("c"), std::nullopt);
  EXPECT_EQ(layout.find(""), std::nullopt);
  EXPECT_EQ(layout.locate(1)->segment, 1U);
  EXPECT_EQ(layout.locate(1)->first, 0);
  EXPECT_EQ(layout.locate(2)->segment, 0U);
  EXPECT_EQ(layout.locate(2)->first, 128);
  EXPECT_THROW((void)layout.locate(3), ContractError);
}

TEST(UnitLayout, ParametersWithoutElementsTakeNoMemory) {
  const auto with =
      UnitLayout::make({{"a", {10}}, {"none", {0, 7}}, {"b", {3}}, {"end", {0}}}, {}, 2);
  const auto without = UnitLayout::make({{"a", {10}}, {"b", {3}}}, {}, 2);
  EXPECT_EQ(with.segments()[0].elems(), without.segments()[0].elems());
  EXPECT_EQ(with.segments()[0].padding(), without.segments()[0].padding());
  EXPECT_EQ(with.locate(2)->first, 64);
  EXPECT_LE(with.locate(3)->first, with.segments()[0].padded_elems());
}

TEST(UnitLayout, RefusesAmbiguousNames) {
  EXPECT_THROW((void)UnitLayout::make({{"", {1}}}, {}, 1), ContractError);
  EXPECT_THROW((void)UnitLayout::make({{"a", {1}}, {"b", {1}}, {"a", {2}}}, {}, 1), ContractError);
  EXPECT_THROW((void)UnitLayout::make({{"a", {1}}, tied("a", {1}, {"x", "y"})}, {}, 1),
               ContractError);
  try {
    (void)UnitLayout::make({{"w", {1}}, {"w", {1}}}, {}, 1);
    FAIL() << "two parameters of one name were accepted";
  } catch (const ContractError& error) { EXPECT_THAT(error.what(), testing::HasSubstr("'w'")); }
}

TEST(UnitLayout, RefusesNoRanksAndSizesBeyondCounting) {
  EXPECT_THROW((void)UnitLayout::make({{"a", {1}}}, {}, 0), ContractError);
  EXPECT_THROW((void)UnitLayout::make({{"a", {1}}}, {}, -3), ContractError);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_THROW((void)UnitLayout::make({{"a", {huge}}, {"b", {huge}}, {"c", {huge}}}, {}, 1),
               ContractError);
}

TEST(UnitLayout, DescriptionsAgreeWhenDeclarationsDo) {
  const auto describe = [](std::vector<ParameterSpec> specs, LayoutOptions options = {},
                           int ranks = 2) {
    return UnitLayout::make(std::move(specs), options, ranks).describe();
  };
  const std::string base = describe({{"a", {2, 3}}, {"b", {4}}});
  EXPECT_EQ(base, describe({{"a", {2, 3}}, {"b", {4}}}));
  // the default, explicit
  EXPECT_EQ(base, describe({{"a", {2, 3}, true, DType::fp32}, {"b", {4}}}));
  EXPECT_NE(base, describe({{"a", {3, 2}}, {"b", {4}}}));
  EXPECT_NE(base, describe({{"a", {2, 3}}, {"c", {4}}}));
  EXPECT_NE(base, describe({{"b", {4}}, {"a", {2, 3}}}));
  EXPECT_NE(base, describe({{"a", {2, 3}}, {"b", {4}, false}}));
  EXPECT_NE(base, describe({{"a", {2, 3}}, {"b", {4}, true, DType::bf16}}));
  EXPECT_NE(base, describe({{"a", {2, 3}}, tied("b", {4}, {"x", "y"})}));
  EXPECT_NE(base, describe({{"a", {2, 3}}, {"b", {4}}}, {.gradient = DType::bf16}));
  EXPECT_NE(base, describe({{"a", {2, 3}}, {"b", {4}}}, {.reduce = DType::bf16}));
  EXPECT_NE(base, describe({{.name = "a", .shape = {2, 3}, .room = 6}, {"b", {4}}}));
}

TEST(UnitLayout, DescribesOneEntryALine) {
  const auto layout =
      UnitLayout::make({{"w", {2, 3}}, {"b", {4}, false}, tied("h", {5}, {"root", "wte"})}, {}, 2);
  EXPECT_EQ(layout.describe(),
            "parameter w [2, 3] fp32 trainable\n"
            "parameter b [4] fp32 frozen\n"
            "parameter h [5] tied to root.wte\n"
            "segment fp32 gradient fp32 reduce fp32 master fp32 trainable elems 6 shard 64\n"
            "segment fp32 gradient fp32 reduce fp32 master fp32 frozen elems 4 shard 64\n");
}

struct RandomUnit {
  std::vector<ParameterSpec> specs;
  std::int64_t elems = 0;  // without aliases
};

RandomUnit random_unit(std::mt19937& random) {
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>{from, to}(random);
  };
  constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};
  RandomUnit unit;
  const int count = draw(0, 8);
  for (int i = 0; i < count; ++i) {
    ParameterSpec spec{fmt::format("p{}", i), {draw(0, 20), draw(1, 20)}, draw(0, 3) != 0};
    if (draw(0, 2) == 0) { spec.dtype = kDTypes[draw(0, 2)]; }
    if (draw(0, 3) == 0) { spec.room = draw(0, 900); }
    if (draw(0, 5) == 0) { spec.tied_to = TiedTo{"root", "owner"}; }
    if (!spec.tied_to) { unit.elems += spec.shape.elems(); }
    unit.specs.push_back(std::move(spec));
  }
  return unit;
}

// Visits each element of each parameter over the shards of all ranks; each is visited once, in
// order.
std::vector<std::int64_t> covered_elems(const UnitLayout& layout) {
  std::vector<std::int64_t> covered(layout.specs().size(), 0);
  for (const SegmentLayout& segment : layout.segments()) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (const Piece& piece : segment.pieces(rank)) {
        EXPECT_EQ(piece.first_in_parameter, covered[piece.parameter]);
        const auto location = layout.locate(piece.parameter);
        EXPECT_EQ(location->first + piece.first_in_parameter,
                  segment.shard(rank).first + piece.first_in_shard);
        covered[piece.parameter] += piece.elems;
      }
    }
  }
  return covered;
}

// A parameter's room belongs to no other parameter and lies within the segment.
void expect_room(const UnitLayout& layout) {
  for (const SegmentLayout& segment : layout.segments()) {
    const auto placements = segment.placements();
    for (std::size_t p = 0; p < placements.size(); ++p) {
      const std::int64_t room = layout.specs()[placements[p].parameter].room;
      if (room == 0 && placements[p].elems == 0) { continue; }
      const bool last = p + 1 == placements.size();
      const std::int64_t end = last ? segment.elems() : placements[p + 1].first;
      EXPECT_GE(end - placements[p].first, std::max(room, placements[p].elems));
    }
  }
}

TEST(UnitLayout, RoomLiesBetweenParametersAndBehindTheLast) {
  const auto layout = UnitLayout::make({{.name = "table", .shape = {5, 3}, .room = 200},
                                        {.name = "bias", .shape = {70}, .room = 64},
                                        {.name = "last", .shape = {1}, .room = 65},
                                        {.name = "none", .shape = {0}}},
                                       {}, 2);
  ASSERT_EQ(layout.segments().size(), 1U);
  const SegmentLayout& segment = layout.segments()[0];
  EXPECT_EQ(layout.locate(1)->first, 256);
  EXPECT_EQ(layout.locate(2)->first, 384);
  EXPECT_EQ(segment.elems(), 449);
  EXPECT_EQ(segment.shard_elems(), 256);
  EXPECT_EQ(segment.padding(), (Ranges{std::vector<Range>{{15, 241}, {326, 58}, {385, 127}}}));
  EXPECT_EQ(layout.parameter_elems(), 86);
}

TEST(UnitLayout, RefusesANegativeRoom) {
  EXPECT_THROW((void)UnitLayout::make({{.name = "a", .shape = {2}, .room = -1}}, {}, 1),
               ContractError);
}

TEST(UnitLayout, RandomUnitsAreCoveredOnce) {
  std::mt19937 random{20'240'501};
  for (int trial = 0; trial < 2000; ++trial) {
    const RandomUnit unit = random_unit(random);
    const int ranks = std::uniform_int_distribution<int>{1, 9}(random);
    const auto layout = UnitLayout::make(unit.specs, {.compute = DType::bf16}, ranks);
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", " << ranks << " ranks\n"
                                    << layout.describe());
    ASSERT_EQ(layout.parameter_elems(), unit.elems);
    const std::vector<std::int64_t> covered = covered_elems(layout);
    for (std::size_t i = 0; i < unit.specs.size(); ++i) {
      const ParameterSpec& spec = unit.specs[i];
      ASSERT_EQ(layout.locate(i).has_value(), !spec.tied_to.has_value());
      ASSERT_EQ(covered[i], spec.tied_to ? 0 : spec.shape.elems());
      if (const auto location = layout.locate(i)) {
        const SegmentLayout& segment = layout.segments()[location->segment];
        ASSERT_EQ(location->first % kAlignElems, 0);
        ASSERT_EQ(segment.trainable(), spec.trainable);
        ASSERT_EQ(segment.dtypes().parameter, spec.dtype.value_or(DType::bf16));
      }
    }
    std::int64_t padding = 0;
    std::int64_t padded = 0;
    for (const SegmentLayout& segment : layout.segments()) {
      padded += segment.padded_elems();
      for (const Range& range : segment.padding()) { padding += range.elems; }
    }
    ASSERT_EQ(padded, unit.elems + padding);
    expect_room(layout);
  }
}

std::vector<std::vector<ParameterSpec>> gpt2_124m_units() {
  constexpr std::int64_t kHidden = 768;
  std::vector<std::vector<ParameterSpec>> units;
  units.push_back({{"wte", {50257, kHidden}},
                   {"wpe", {1024, kHidden}},
                   {"ln_f.weight", {kHidden}},
                   {"ln_f.bias", {kHidden}}});
  for (int layer = 0; layer < 12; ++layer) {
    units.push_back({{"ln_1.weight", {kHidden}},
                     {"ln_1.bias", {kHidden}},
                     {"attn.c_attn.weight", {kHidden, 3 * kHidden}},
                     {"attn.c_attn.bias", {3 * kHidden}},
                     {"attn.c_proj.weight", {kHidden, kHidden}},
                     {"attn.c_proj.bias", {kHidden}},
                     {"ln_2.weight", {kHidden}},
                     {"ln_2.bias", {kHidden}},
                     {"mlp.c_fc.weight", {kHidden, 4 * kHidden}},
                     {"mlp.c_fc.bias", {4 * kHidden}},
                     {"mlp.c_proj.weight", {4 * kHidden, kHidden}},
                     {"mlp.c_proj.bias", {kHidden}}});
  }
  return units;
}

// Rounding up shards adds less than 64 + 1 elements per rank, gaps less than 64 per parameter.
TEST(UnitLayout, OverheadOfGpt2IsBelowATenthOfAPercent) {
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
    std::int64_t elems = 0;
    std::int64_t padded = 0;
    for (auto& specs : gpt2_124m_units()) {
      const auto parameters = static_cast<std::int64_t>(specs.size());
      const auto layout = UnitLayout::make(std::move(specs), {}, ranks);
      const std::int64_t overhead = layout.segments()[0].padded_elems() - layout.parameter_elems();
      EXPECT_LT(overhead, (kAlignElems + 1) * ranks + kAlignElems * parameters);
      elems += layout.parameter_elems();
      padded += layout.segments()[0].padded_elems();
    }
    EXPECT_EQ(elems, 124'439'808);
    EXPECT_LT(static_cast<double>(padded - elems), 0.001 * static_cast<double>(elems)) << ranks;
  }
}

}  // namespace
}  // namespace tessera::unit_layout_test
