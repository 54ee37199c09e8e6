#include "kernels/support/exp.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels::exp_test {
namespace {

float exp_of(float x) {
  return exp(splat(x))[0];
}

/// The distance from the exact value in units of its last place.
double ulps_off(float actual, double exact) {
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(static_cast<double>(actual) - exact) / std::ldexp(1.0, exponent - 23);
}

// Every 97th float between the limits, of both signs: 24 million values, eight per call.
TEST(VectorExp, StaysWithinItsBound) {
  constexpr std::uint32_t kEvery = TESSERA_SANITIZED ? 8 * 97 * 31 : 8 * 97;
  double worst = 0.0;
  for (const std::uint32_t sign : {0U, 0x80000000U}) {
    const auto limit = std::bit_cast<std::uint32_t>(sign == 0U ? 88.7F : 87.3F);
    for (std::uint32_t bits = 0; bits < limit; bits += kEvery) {
      Vec x;
      for (std::uint32_t l = 0; l < 8; ++l) { x[l] = std::bit_cast<float>((bits + 97 * l) | sign); }
      const Vec y = exp(x);
      for (std::uint32_t l = 0; l < 8; ++l) {
        if (!(std::abs(x[l]) <= std::bit_cast<float>(limit))) { continue; }
        worst = std::max(worst, ulps_off(y[l], std::exp(static_cast<double>(x[l]))));
      }
    }
  }
  EXPECT_LT(worst, kExpUlps);
  EXPECT_GT(worst, 0.5);  // the measure itself works
}

TEST(VectorExp, TakesEveryInput) {
  EXPECT_EQ(exp_of(0.0F), 1.0F);
  EXPECT_EQ(exp_of(-0.0F), 1.0F);
  EXPECT_EQ(exp_of(kInfinity), kInfinity);
  EXPECT_EQ(exp_of(1e30F), kInfinity);
  EXPECT_EQ(exp_of(88.8F), kInfinity);
  EXPECT_EQ(exp_of(-kInfinity), 0.0F);
  EXPECT_EQ(exp_of(-1e30F), 0.0F);
  EXPECT_EQ(exp_of(-104.0F), 0.0F);
  EXPECT_TRUE(std::isnan(exp_of(kNan)));
  EXPECT_NEAR(exp_of(-100.0F), 3.78e-44F, 2e-45F);  // bound: subnormal, steps of 1.4e-45
}

TEST(VectorExp, LanesAreIndependent) {
  const Vec x = {-1.0F, kNan, 500.0F, 0.25F, -500.0F, kInfinity, 3.0F, -kInfinity};
  const Vec y = exp(x);
  for (int l = 0; l < 8; ++l) {
    const float alone = exp_of(x[l]);
    const float together = y[l];
    EXPECT_TRUE(same_bits({&alone, 1}, {&together, 1}) || std::isnan(alone)) << l;
  }
}

}  // namespace
}  // namespace tessera::kernels::exp_test
