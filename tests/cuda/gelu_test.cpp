#include "kernels/gelu/gelu.hpp"

#include "cuda/device_values.hpp"

namespace tessera::test {
namespace {

using GeluCuda = CudaTest;
namespace reference = kernels::reference;

/// Small and large, both signs, around the places where the function bends or is cut off.
Floats interesting() {
  Floats x = random_floats(2'000, 1, 3.0F);
  for (int i = -1'300; i <= 1'300; ++i) { x.push_back(static_cast<float>(i) * 1e-2F); }
  for (const float big : {1e-45F, 1e-30F, 12.0F, 12.1F, 100.0F, 1e4F}) {
    x.push_back(big);
    x.push_back(-big);
  }
  x.push_back(0.0F);
  return x;
}

TEST_F(GeluCuda, ForwardIsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    const Floats x = rounded(dtype, interesting());
    Floats expected(x.size());
    reference::gelu_forward(x.data(), expected.data(), std::ssize(x), Stream{});
    DeviceValues in{bench(), x, dtype}, y{bench(), filled(std::ssize(x), kNan), dtype};
    table().gelu_forward(in, y, std::ssize(x), stream());
    expect_within(y.floats(), expected, dtype, [&](std::size_t i) {
      return 6 * kRoundoff * std::abs(static_cast<double>(x[i]));
    });
  }
}

TEST_F(GeluCuda, BackwardIsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    const Floats x = rounded(dtype, interesting());
    const Floats dy = rounded(dtype, random_floats(std::ssize(x), 2));
    Floats expected(x.size());
    reference::gelu_backward(x.data(), dy.data(), expected.data(), std::ssize(x), Stream{});
    DeviceValues in{bench(), x, dtype}, gradient{bench(), dy, dtype};
    DeviceValues dx{bench(), filled(std::ssize(x), kNan), dtype};
    table().gelu_backward(in, gradient, dx, std::ssize(x), stream());
    expect_within(dx.floats(), expected, dtype, [&](std::size_t i) {
      return 20 * kRoundoff * std::abs(static_cast<double>(dy[i]));
    });
  }
}

TEST_F(GeluCuda, BothKeepTheirPrecisionFarLeftOfZero) {
  Floats x;
  for (int i = 200; i < 980; ++i) { x.push_back(static_cast<float>(i) * -1e-2F); }
  const auto elems = std::ssize(x);
  DeviceArray<float> in{bench(), x}, dy{bench(), filled(elems, 1.0F)};
  DeviceArray<float> y{bench(), elems}, dx{bench(), elems};
  table().gelu_forward(in.data(), y.data(), elems, stream());
  table().gelu_backward(in.data(), dy.data(), dx.data(), elems, stream());
  const Floats values = y.read(), slopes = dx.read();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wide = x[i];
    const double two_u = 1.5957691216057308 * wide * (1 + 0.044715 * wide * wide);
    const double inner = 1.5957691216057308 * (1 + 3 * 0.044715 * wide * wide);
    const double logistic = 1 / (1 + std::exp(-two_u));
    const double slope = logistic * (1 + wide * inner / (1 + std::exp(two_u)));
    const double bound = (8 - 5 * two_u) * kRoundoff;
    ASSERT_NEAR(values[i] / (wide * logistic), 1.0, bound) << "x = " << x[i];
    ASSERT_NEAR(slopes[i] / slope, 1.0, 2 * bound) << "x = " << x[i];
  }
}

TEST_F(GeluCuda, InfinitiesAndNansStay) {
  DeviceArray<float> x{bench(), Floats{kNan, kInfinity, -12.0F, -1e10F, -3.4e38F, 3e38F}};
  DeviceArray<float> dy{bench(), filled(6, 1.0F)}, y{bench(), 6}, dx{bench(), 6};
  table().gelu_forward(x.data(), y.data(), 6, stream());
  table().gelu_backward(x.data(), dy.data(), dx.data(), 6, stream());
  const Floats values = y.read(), slopes = dx.read();
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_TRUE(std::isnan(slopes[0]));
  EXPECT_EQ(values[1], kInfinity);
  for (const std::size_t left : {2U, 3U, 4U}) {
    EXPECT_EQ(values[left], 0.0F);
    EXPECT_LE(std::abs(slopes[left]), 1e-34F);
  }
  EXPECT_EQ(values[5], 3e38F);
  EXPECT_EQ(slopes[5], 1.0F);
}

TEST_F(GeluCuda, BitsDependOnTheElementAloneAlsoInPlace) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t elems : kernels::kSizes) {
      const Floats x = random_floats(elems, 2, 3.0F), dy = random_floats(elems, 3);
      DeviceValues in{bench(), x, dtype}, gradient{bench(), dy, dtype};
      DeviceValues y{bench(), filled(elems, kNan), dtype}, dx{bench(), filled(elems, kNan), dtype};
      table().gelu_forward(in, y, elems, stream());
      table().gelu_backward(in, gradient, dx, elems, stream());
      DeviceValues moved_y{bench(), x, dtype, 1}, moved_dx{bench(), dy, dtype, 3};
      table().gelu_backward(moved_y, moved_dx, moved_dx, elems, stream());
      table().gelu_forward(moved_y, moved_y, elems, stream());
      EXPECT_EQ(moved_y.read(), y.read()) << elems;
      EXPECT_EQ(moved_dx.read(), dx.read()) << elems;
    }
  }
}

TEST_F(GeluCuda, MixedDtypesAreRefused) {
  DeviceArray<float> x{bench(), 4};
  EXPECT_THROW(table().gelu_forward(x.data(), Values{x.data(), DType::bf16}, 2, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::test
