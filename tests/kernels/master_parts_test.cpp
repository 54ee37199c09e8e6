// A bf16 parameter and the lower half of its master make up the master.
#include "kernels/support/master_parts.hpp"

#include "kernels/support.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::master_parts_test {
namespace {

constexpr std::uint32_t kHalves = 1U << 16U;

float master_of(std::uint32_t upper, std::uint32_t lower) {
  return std::bit_cast<float>(upper << 16U | lower);
}

/// Signs, denormals, the ends of the normal range, infinities and NaNs, and many values between.
std::vector<std::uint32_t> uppers() {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t sign : {0U, 0x8000U}) {
    for (const std::uint32_t special :
         {0U, 1U, 0x7FU, 0x80U, 0x81U, 0x7F7EU, 0x7F7FU, 0x7F80U, 0x7F81U, 0x7FC0U, 0x7FFFU}) {
      all.push_back(sign | special);
    }
  }
  for (std::uint32_t upper = 3; upper < kHalves; upper += TESSERA_SANITIZED == 1 ? 4001 : 251) {
    all.push_back(upper);
  }
  return all;
}

TEST(MasterParts, JoinToTheMasterWithEveryLowerHalf) {
  for (const std::uint32_t upper : uppers()) {
    for (std::uint32_t lower = 0; lower < kHalves; ++lower) {
      const float master = master_of(upper, lower);
      const float joined = join_master(parameter_bits(master), remainder_bits(master));
      const std::uint32_t quiet = std::isnan(master) ? 0x400000U : 0U;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(joined), upper << 16U | lower | quiet);
    }
  }
}

// Equals bfloat16's rounding to even except for ties.
TEST(MasterParts, TheParameterIsTheNearestTiesAwayFromZero) {
  for (const std::uint32_t upper : uppers()) {
    for (std::uint32_t lower = 0; lower < kHalves; ++lower) {
      const float master = master_of(upper, lower);
      const bool tie = lower == 0x8000U && !std::isnan(master);
      const std::uint16_t even = bfloat16::from_float(master).bits;
      const std::uint32_t expected = tie ? upper + 1 : even;
      ASSERT_EQ(parameter_bits(master), expected) << std::hexfloat << master;
    }
  }
}

TEST(MasterParts, MatchValuesWorkedOutByHand) {
  EXPECT_EQ(parameter_bits(1.0F), 0x3F80);
  EXPECT_EQ(parameter_bits(1.0F + 0x1p-8F), 0x3F81) << "half way to the next: away from zero";
  EXPECT_EQ(parameter_bits(-1.0F - 0x1p-8F), 0xBF81);
  EXPECT_EQ(parameter_bits(-0.0F), 0x8000);
  EXPECT_EQ(parameter_bits(0x1p-149F), 0) << "the smallest number";
  EXPECT_EQ(remainder_bits(0x1p-149F), 1);
  EXPECT_EQ(parameter_bits(std::numeric_limits<float>::max()), 0x7F80) << "rounds to infinity";
  EXPECT_EQ(join_master(0x7F80, 0xFFFF), std::numeric_limits<float>::max());
  EXPECT_EQ(join_master(0x7F80, 0), kInfinity);
  EXPECT_EQ(join_master(0xFF80, 0), -kInfinity);
}

// Why ties round away from zero: with ties to even, both parts of these two masters would be equal.
TEST(MasterParts, DistinguishTiesThatRoundToTheSameEvenNumber) {
  const float below = 1.0F - 0x1p-9F;  // half way from 0x3F7F to 0x3F80
  const float above = 1.0F + 0x1p-8F;  // half way from 0x3F80 to 0x3F81
  ASSERT_EQ(bfloat16::from_float(below).bits, bfloat16::from_float(above).bits);
  ASSERT_EQ(remainder_bits(below), remainder_bits(above));
  EXPECT_NE(parameter_bits(below), parameter_bits(above));
}

TEST(MasterParts, ArraysHoldThePartsOfTheirElements) {
  for (const std::int64_t elems : {0, 1, 7, 8, 31, 33, 257}) {
    Floats masters = random_floats(elems, 3);
    if (elems > 7) {
      std::ranges::copy(Floats{kNan, kInfinity, -0.0F, 1.0F + 0x1p-8F, 3.4e38F, 1e-40F},
                        masters.begin());
    }
    const auto count = static_cast<std::size_t>(elems);
    std::vector<bfloat16> value(count), parameter(count);
    std::vector<std::uint16_t> remainder(count);
    std::vector<float16> narrow(count);
    store_part(value.data(), MasterPart::value, masters.data(), elems);
    store_part(parameter.data(), MasterPart::parameter, masters.data(), elems);
    store_part({remainder.data(), DType::bf16}, MasterPart::remainder, masters.data(), elems);
    store_part(narrow.data(), MasterPart::parameter, masters.data(), elems);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(value[i].bits, bfloat16::from_float(masters[i]).bits);
      EXPECT_EQ(parameter[i].bits, parameter_bits(masters[i]));
      EXPECT_EQ(remainder[i], remainder_bits(masters[i]));
      EXPECT_EQ(narrow[i].bits, float16::from_float(masters[i]).bits) << "fp16 has one rule";
    }
    Floats joined(count);
    join_masters(joined.data(), parameter.data(), remainder.data(), elems);
    EXPECT_TRUE(same_bits(joined, masters));
  }
}

}  // namespace
}  // namespace tessera::kernels::master_parts_test
