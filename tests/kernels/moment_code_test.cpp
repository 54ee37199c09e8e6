// The codes of 8-bit moments, without an optimizer.
#include "kernels/update/moment_code.hpp"

#include <type_traits>

#include "kernels/support.hpp"

namespace tessera::kernels::moment_code_test {
namespace {

// Values worked out by hand: x / s = 2^e (1 + f) - 1.
static_assert(FirstCode::value(0, 1.0F) == 0.0F);
static_assert(FirstCode::value(1, 1.0F) == 0.125F);
static_assert(FirstCode::value(8, 1.0F) == 1.0F);
static_assert(FirstCode::value(9, 2.0F) == 2.5F);
static_assert(FirstCode::value(127, 1.0F) == 61439.0F);
static_assert(SecondCode::value(1, 1.0F) == 0.0625F);
static_assert(SecondCode::value(255, 1.0F) == 63487.0F);
static_assert(FirstCode::decode(0x80U + 9, 2.0F) == -2.5F);
static_assert(SecondCode::decode(16 + 8, 1.0F) == 4.0F);

template <class Code>
constexpr std::uint32_t kCodes = std::is_same_v<Code, FirstCode> ? 128 : 256;

template <class Code>
class MomentCode : public testing::Test {};
using Codes = testing::Types<FirstCode, SecondCode>;
TYPED_TEST_SUITE(MomentCode, Codes);

TYPED_TEST(MomentCode, KeepsExactlyRepresentableValues) {
  for (const float scale : {0x1p-119F, 1.0F, 0x1p40F}) {
    for (std::uint32_t code = 0; code < kCodes<TypeParam>; ++code) {
      const float value = TypeParam::value(code, scale);
      for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xFFFFU}) {
        ASSERT_EQ(TypeParam::code(TypeParam::magnitude(value), TypeParam::inverse(scale), random),
                  code);
      }
    }
  }
}

TYPED_TEST(MomentCode, TheScaleIsTheSmallestThatReachesTheLargest) {
  for (const int exponent : {-118, -60, 0, 40}) {
    const float most = std::ldexp(TypeParam::kMost, exponent);
    EXPECT_EQ(TypeParam::scale(TypeParam::magnitude(most)), std::ldexp(1.0F, exponent));
    const float above = std::nextafter(most, kInfinity);
    EXPECT_EQ(TypeParam::scale(TypeParam::magnitude(above)), std::ldexp(1.0F, exponent + 1));
  }
  EXPECT_EQ(TypeParam::scale(0), 0x1p-119F);
  EXPECT_EQ(TypeParam::scale(TypeParam::magnitude(1e-42F)), 0x1p-119F);
}

// Over all 65,536 words the mean is the value, within half of the gap's 65,536th part.
TYPED_TEST(MomentCode, TheMeanOverAllChancesIsTheValue) {
  const Floats values{0.03F, 0.7F, 1.9F, 77.7F, 4321.0F, 61000.0F};
  for (const float value : values) {
    double sum = 0.0;
    float least = kInfinity;
    float most = 0.0F;
    for (std::uint32_t random = 0; random <= 0xFFFF; ++random) {
      const std::uint32_t code = TypeParam::code(TypeParam::magnitude(value), 1.0F, random);
      const float became = TypeParam::value(code, 1.0F);
      sum += became;
      least = std::min(least, became);
      most = std::max(most, became);
    }
    EXPECT_LE(least, value);
    EXPECT_GE(most, value);
    EXPECT_LE(most - least, (value + 1.0F) * 16.0F / kCodes<TypeParam>);
    EXPECT_NEAR(sum / 65536, value, static_cast<double>(most - least) * 0x1p-16) << value;
  }
}

TYPED_TEST(MomentCode, NeverRoundsToInfinity) {
  for (const float value : {kInfinity, -kInfinity, kNan, 3e38F}) {
    const std::uint32_t magnitude = TypeParam::magnitude(value);
    const float scale = TypeParam::scale(magnitude);
    for (const std::uint32_t random : {0U, 0xFFFFU}) {
      const std::uint32_t code = TypeParam::encode(value, TypeParam::inverse(scale), random);
      EXPECT_TRUE(std::isfinite(TypeParam::decode(code, scale))) << value;
      EXPECT_NE(TypeParam::decode(code, scale), 0.0F) << value;
    }
  }
}

TEST(SecondMomentCode, PositiveValuesStayPositive) {
  for (const float root : {1e-45F, 1e-30F, 1e-9F}) {
    for (const std::uint32_t random : {0U, 0xFFFFU}) {
      EXPECT_EQ(SecondCode::encode(root, 1.0F, random), 1U);
    }
  }
  EXPECT_EQ(SecondCode::encode(0.0F, 1.0F, 0), 0U);
  EXPECT_EQ(FirstCode::encode(1e-9F, 1.0F, 0xFFFF), 0U);
}

}  // namespace
}  // namespace tessera::kernels::moment_code_test
