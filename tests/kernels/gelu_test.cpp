#include "kernels/gelu/gelu.hpp"

#include <numbers>

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

constexpr double kRoundoff = 5.9604644775390625e-8;  // 2^-24

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// Small and large, both signs, around the places where the function bends or is cut off.
Floats interesting() {
  Floats x = random_floats(20'000, 1, 3.0F);
  for (int i = -13'000; i <= 13'000; ++i) { x.push_back(static_cast<float>(i) * 1e-3F); }
  for (const float big : {1e-45F, 1e-30F, 12.0F, 12.1F, 100.0F, 1e10F, 1e30F, 3.4e38F}) {
    x.push_back(big);
    x.push_back(-big);
  }
  x.push_back(0.0F);
  return x;
}

TEST(GeluReference, ByHand) {
  const Floats x{0.0F, 1.0F, -1.0F, 10.0F};
  Floats y(4), dx(4);
  reference::gelu_forward(x.data(), y.data(), 4, Stream{});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_NEAR(y[1], 0.841192F, 1e-6F);
  EXPECT_NEAR(y[2], -0.158808F, 1e-6F);
  EXPECT_EQ(y[3], 10.0F);
  const Floats dy{2.0F, 2.0F, 1.0F, 1.0F};
  reference::gelu_backward(x.data(), dy.data(), dx.data(), 4, Stream{});
  EXPECT_EQ(dx[0], 1.0F);  // the slope at 0 is one half
  EXPECT_EQ(dx[3], 1.0F);
}

using GeluTest = KernelTest;

// The exponent 2u carries a few roundings and |2u| <= 142 scales them into the exponential; where
// it matters (|gelu| not tiny) |2u| < 20. Bound: 4 u |x| (and for the slope, which is at most 1.13,
// 16 u): the largest seen are about a third of it.
TEST_F(GeluTest, ForwardIsCloseToFloat64) {
  const Floats x = interesting();
  Floats expected(x.size()), y(x.size(), kNan);
  reference::gelu_forward(x.data(), expected.data(), std::ssize(x), Stream{});
  cpu_.gelu_forward(x.data(), y.data(), std::ssize(x), stream());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(y[i], expected[i], 4 * kRoundoff * std::abs(static_cast<double>(x[i])))
        << "x = " << x[i];
  }
}

TEST_F(GeluTest, BackwardIsCloseToFloat64) {
  const Floats x = interesting();
  const Floats dy(x.size(), 1.0F);
  Floats expected(x.size()), dx(x.size(), kNan);
  reference::gelu_backward(x.data(), dy.data(), expected.data(), std::ssize(x), Stream{});
  cpu_.gelu_backward(x.data(), dy.data(), dx.data(), std::ssize(x), stream());
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(dx[i], expected[i], 16 * kRoundoff) << "x = " << x[i];
  }
}

// Where both are tiny, far left of zero, they keep their relative precision: the bound is what
// roundings of the exponent 2u become in the exponential.
TEST_F(GeluTest, BothKeepTheirPrecisionFarLeftOfZero) {
  Floats x;
  for (int i = 2'000; i < 9'800; ++i) { x.push_back(static_cast<float>(i) * -1e-3F); }
  const Floats dy(x.size(), 1.0F);
  Floats y(x.size(), kNan), dx(x.size(), kNan);
  cpu_.gelu_forward(x.data(), y.data(), std::ssize(x), stream());
  cpu_.gelu_backward(x.data(), dy.data(), dx.data(), std::ssize(x), stream());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wide = x[i];
    const double two_u = 2 * std::sqrt(2 / std::numbers::pi) * wide * (1 + 0.044715 * wide * wide);
    const double inner = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * wide * wide);
    const double logistic = 1 / (1 + std::exp(-two_u));
    const double slope = logistic * (1 + wide * inner / (1 + std::exp(two_u)));
    const double bound = 3 * kRoundoff * (4 - two_u);
    ASSERT_NEAR(y[i] / (wide * logistic), 1.0, bound) << "x = " << x[i];
    ASSERT_NEAR(dx[i] / slope, 1.0, bound) << "x = " << x[i];
  }
}

TEST_F(GeluTest, NothingIsLeftFarLeftOfZero) {
  const Floats x{-12.0F, -13.0F, -1e3F, -1e10F, -3.4e38F};
  const Floats dy(x.size(), 1.0F);
  Floats y(x.size(), kNan), dx(x.size(), kNan);
  cpu_.gelu_forward(x.data(), y.data(), std::ssize(x), stream());
  cpu_.gelu_backward(x.data(), dy.data(), dx.data(), std::ssize(x), stream());
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], 0.0F) << x[i];
    EXPECT_LE(std::abs(dx[i]), 1e-34F) << x[i];
  }
}

TEST_F(GeluTest, BackwardIsTheSlopeOfForward) {
  const double h = 1e-4;
  for (float x = -6.0F; x < 6.0F; x += 0.37F) {
    const float dy = 1.5F;
    float dx = kNan;
    cpu_.gelu_backward(&x, &dy, &dx, 1, stream());
    const double wide = x;
    EXPECT_NEAR(dx, 1.5 * (gelu(wide + h) - gelu(wide - h)) / (2 * h), 2e-6) << x;
  }
}

TEST_F(GeluTest, BitsDependOnTheElementAloneAlsoInPlace) {
  for (const std::int64_t elems : kSizes) {
    const Floats x = random_floats(elems, 2, 3.0F);
    const Floats dy = random_floats(elems, 3);
    Floats y = filled(elems, kNan), dx = filled(elems, kNan);
    cpu_.gelu_forward(x.data(), y.data(), elems, stream());
    cpu_.gelu_backward(x.data(), dy.data(), dx.data(), elems, stream());
    const auto cuts = random_cuts(elems, 5, 4);
    Placed cut_y{x, 3}, cut_dx{dy, 5};
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::int64_t from = cuts[i];
      cpu_.gelu_backward(x.data() + from, cut_dx.data() + from, cut_dx.data() + from,
                         cuts[i + 1] - from, stream());
      cpu_.gelu_forward(cut_y.data() + from, cut_y.data() + from, cuts[i + 1] - from, stream());
    }
    EXPECT_TRUE(same_bits(cut_y.values(), y)) << elems;
    EXPECT_TRUE(same_bits(cut_dx.values(), dx)) << elems;
    EXPECT_TRUE(cut_y.guarded());
    EXPECT_TRUE(cut_dx.guarded());
  }
}

TEST_F(GeluTest, NanStaysNan) {
  const float x = kNan, dy = 1.0F;
  float y = 0.0F, dx = 0.0F;
  cpu_.gelu_forward(&x, &y, 1, stream());
  cpu_.gelu_backward(&x, &dy, &dx, 1, stream());
  EXPECT_TRUE(std::isnan(y));
  EXPECT_TRUE(std::isnan(dx));
}

}  // namespace
}  // namespace tessera::kernels
