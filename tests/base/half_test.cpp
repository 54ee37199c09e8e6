#include "tessera/base/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera::half_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  int mantissa_bits;
  int bias;
};

constexpr Format kBf16{7, 127};
constexpr Format kFp16{10, 15};

// The value of 16 bits, computed in double from the definition of the format.
double value_of(std::uint16_t bits, Format format) {
  const int exponent_mask = (1 << (15 - format.mantissa_bits)) - 1;
  const int exponent = (bits >> format.mantissa_bits) & exponent_mask;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  if (exponent == exponent_mask) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) { return sign * std::ldexp(fraction, 1 - format.bias); }
  return sign * std::ldexp(1.0 + fraction, exponent - format.bias);
}

template <class Half>
void every_pattern_has_its_value(Format format) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = value_of(bits, format);
    const float actual = Half{bits}.to_float();
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << i;
    } else {
      ASSERT_EQ(static_cast<double>(actual), expected) << i;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << i;
    }
  }
}

template <class Half>
void every_pattern_survives_the_round_trip(Format format) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const Half half{static_cast<std::uint16_t>(i)};
    const Half back = Half::from_float(half.to_float());
    if (std::isnan(value_of(half.bits, format))) {
      ASSERT_TRUE(std::isnan(back.to_float())) << i;
      ASSERT_EQ(back.bits & 0x8000, half.bits & 0x8000) << i;
    } else {
      ASSERT_EQ(back.bits, half.bits) << i;
    }
  }
}

// Rounds the floats just below, at and just above the middle of every two neighbours. The neighbour
// above the largest finite value is the next power of two, which becomes infinity.
template <class Half>
void every_middle_rounds_to_nearest_even(Format format, std::uint16_t infinity) {
  for (std::uint16_t low = 0; low < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double above =
        high == infinity ? std::ldexp(1.0, format.bias + 1) : value_of(high, format);
    const double exact_middle = (value_of(low, format) + above) / 2;
    const auto middle = static_cast<float>(exact_middle);
    ASSERT_EQ(static_cast<double>(middle), exact_middle) << low;
    const std::uint16_t even = (low & 1U) == 0 ? low : high;
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
      const auto rounded = [sign, sign_bit](float value) {
        return static_cast<std::uint16_t>(Half::from_float(sign * value).bits ^ sign_bit);
      };
      ASSERT_EQ(rounded(middle), even) << low;
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0F)), low) << low;
      ASSERT_EQ(rounded(std::nextafter(middle, kInfinity)), high) << low;
    }
  }
}

template <class Half>
void special_values_stay(std::uint16_t infinity) {
  EXPECT_EQ(Half::from_float(0.0F).bits, 0);
  EXPECT_EQ(Half::from_float(-0.0F).bits, 0x8000);
  EXPECT_EQ(Half::from_float(kInfinity).bits, infinity);
  EXPECT_EQ(Half::from_float(-kInfinity).bits, infinity | 0x8000);
  EXPECT_EQ(Half::from_float(std::numeric_limits<float>::max()).bits, infinity);
  EXPECT_EQ(Half::from_float(std::numeric_limits<float>::lowest()).bits, infinity | 0x8000);
  EXPECT_EQ(Half::from_float(std::numeric_limits<float>::denorm_min()).bits, 0);
}

// Tests signalling and quiet NaNs, and one whose payload is only in bits that rounding drops.
template <class Half>
void nan_stays_a_quiet_nan(Format format) {
  for (const std::uint32_t bits : {0x7F800001U, 0x7FC00000U, 0x7F801000U, 0x7FFFFFFFU}) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const Half half = Half::from_float(std::bit_cast<float>(bits | sign));
      EXPECT_TRUE(std::isnan(value_of(half.bits, format))) << std::hex << bits;
      EXPECT_NE(half.bits & (1 << (format.mantissa_bits - 1)), 0) << std::hex << bits;
      EXPECT_EQ(half.bits >> 15, sign >> 31) << std::hex << bits;
    }
  }
}

TEST(Bfloat16, EveryPatternHasItsValue) {
  every_pattern_has_its_value<bfloat16>(kBf16);
}
TEST(Bfloat16, EveryPatternSurvivesTheRoundTrip) {
  every_pattern_survives_the_round_trip<bfloat16>(kBf16);
}
TEST(Bfloat16, EveryMiddleRoundsToNearestEven) {
  every_middle_rounds_to_nearest_even<bfloat16>(kBf16, 0x7F80);
}
TEST(Bfloat16, SpecialValuesStay) {
  special_values_stay<bfloat16>(0x7F80);
}
TEST(Bfloat16, NanStaysAQuietNan) {
  nan_stays_a_quiet_nan<bfloat16>(kBf16);
}

TEST(Float16, EveryPatternHasItsValue) {
  every_pattern_has_its_value<float16>(kFp16);
}
TEST(Float16, EveryPatternSurvivesTheRoundTrip) {
  every_pattern_survives_the_round_trip<float16>(kFp16);
}
TEST(Float16, EveryMiddleRoundsToNearestEven) {
  every_middle_rounds_to_nearest_even<float16>(kFp16, 0x7C00);
}
TEST(Float16, SpecialValuesStay) {
  special_values_stay<float16>(0x7C00);
}
TEST(Float16, NanStaysAQuietNan) {
  nan_stays_a_quiet_nan<float16>(kFp16);
}

TEST(Float16, KnownNumbers) {
  EXPECT_EQ(float16::from_float(1.0F).bits, 0x3C00);
  EXPECT_EQ(float16::from_float(-2.0F).bits, 0xC000);
  EXPECT_EQ(float16::from_float(65504.0F).bits, 0x7BFF);
  EXPECT_EQ(float16::from_float(0x1p-24F).bits, 0x0001);
  EXPECT_EQ(float16::from_float(0.1F).bits, 0x2E66);
}

TEST(Bfloat16, KnownNumbers) {
  EXPECT_EQ(bfloat16::from_float(1.0F).bits, 0x3F80);
  EXPECT_EQ(bfloat16::from_float(-2.0F).bits, 0xC000);
  EXPECT_EQ(bfloat16::from_float(3.14159265F).bits, 0x4049);
  EXPECT_EQ(bfloat16::from_float(0.1F).bits, 0x3DCD);
}

}  // namespace
}  // namespace tessera::half_test
