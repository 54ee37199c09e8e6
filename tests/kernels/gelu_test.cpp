#include "kernels/gelu/gelu.hpp"

#include <numbers>

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::gelu_test {
namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// Small and large values of both signs, around the places where the function bends or is cut off,
/// rounded to a dtype; only those finite in it.
Floats interesting(DType dtype) {
  Floats x = random_floats(20'000, 1, 3.0F);
  for (int i = -13'000; i <= 13'000; ++i) { x.push_back(static_cast<float>(i) * 1e-3F); }
  for (const float big : {1e-45F, 1e-30F, 12.0F, 12.1F, 100.0F, 1e4F, 1e10F, 1e30F, 3.4e38F}) {
    x.push_back(big);
    x.push_back(-big);
  }
  x.push_back(0.0F);
  x = rounded(dtype, x);
  std::erase_if(x, [](float value) { return !std::isfinite(value); });
  return x;
}

/// Error bounds of a backend against float64, in fp32 roundoffs, besides the rounding of stored
/// results: |x| times `forward`, |dy| times `backward`. Far left of zero, where both are tiny, the
/// relative bounds are `far - far_slope * 2u`, and `far_gradient` times that. The exponent 2u has a
/// few roundings, which the exponential scales by |2u| <= 142; where |gelu| is not tiny, |2u| < 20.
struct Bounds {
  double forward, backward, far, far_slope, far_gradient;
};
constexpr Bounds kCpuBounds{2, 13, 12, 3, 1};
constexpr Bounds kCudaBounds{6, 20, 8, 5, 2};

TEST(GeluReference, ByHand) {
  const Floats x{0.0F, 1.0F, -1.0F, 10.0F};
  Floats y(4), dx(4);
  reference::gelu_forward(x.data(), y.data(), 4, Stream{});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_NEAR(y[1], 0.841192F, 1e-6F);   // bound: six digits
  EXPECT_NEAR(y[2], -0.158808F, 1e-6F);  // bound: six digits
  EXPECT_EQ(y[3], 10.0F);
  const Floats dy{2.0F, 2.0F, 1.0F, 1.0F};
  reference::gelu_backward(x.data(), dy.data(), dx.data(), 4, Stream{});
  EXPECT_EQ(dx[0], 1.0F);  // the slope at 0 is one half
  EXPECT_EQ(dx[3], 1.0F);
}

class GeluKernels : public BackendTest {
 protected:
  static const Bounds& bounds() { return on_cuda() ? kCudaBounds : kCpuBounds; }

  struct Results {
    Floats y, dx;
  };
  Results results(const Floats& x) {
    DeviceArray<float> in{bench(), x}, dy{bench(), filled(std::ssize(x), 1.0F)};
    DeviceArray<float> y{bench(), in.elems()}, dx{bench(), in.elems()};
    table().gelu_forward(in.data(), y.data(), in.elems(), stream());
    table().gelu_backward(in.data(), dy.data(), dx.data(), in.elems(), stream());
    return {y.read(), dx.read()};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, GeluKernels, backends(), backend_name);

TEST_P(GeluKernels, ForwardIsCloseToFloat64) {
  for (const DType dtype : kValueDTypes) {
    const Floats x = interesting(dtype);
    Floats expected(x.size());
    reference::gelu_forward(x.data(), expected.data(), std::ssize(x), Stream{});
    DeviceValues in{bench(), x, dtype}, y{bench(), std::ssize(x), dtype};
    table().gelu_forward(in, y, std::ssize(x), stream());
    expect_within(y.floats(), expected, dtype, [&](std::size_t i) {
      return bounds().forward * kRoundoff * std::abs(static_cast<double>(x[i]));
    });
  }
}

TEST_P(GeluKernels, BackwardIsCloseToFloat64) {
  for (const DType dtype : kValueDTypes) {
    const Floats x = interesting(dtype);
    for (const Floats& dy :
         {filled(std::ssize(x), 1.0F), rounded(dtype, random_floats(std::ssize(x), 2))}) {
      Floats expected(x.size());
      reference::gelu_backward(x.data(), dy.data(), expected.data(), std::ssize(x), Stream{});
      DeviceValues in{bench(), x, dtype}, gradient{bench(), dy, dtype};
      DeviceValues dx{bench(), std::ssize(x), dtype};
      table().gelu_backward(in, gradient, dx, std::ssize(x), stream());
      expect_within(dx.floats(), expected, dtype, [&](std::size_t i) {
        return bounds().backward * kRoundoff * std::abs(static_cast<double>(dy[i]));
      });
    }
  }
}

TEST_P(GeluKernels, BothKeepTheirPrecisionFarLeftOfZero) {
  Floats x;
  for (int i = 2'000; i < 9'800; ++i) { x.push_back(static_cast<float>(i) * -1e-3F); }
  const auto [y, dx] = results(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wide = x[i];
    const double two_u = 2 * std::sqrt(2 / std::numbers::pi) * wide * (1 + 0.044715 * wide * wide);
    const double inner = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * wide * wide);
    const double logistic = 1 / (1 + std::exp(-two_u));
    const double slope = logistic * (1 + wide * inner / (1 + std::exp(two_u)));
    const double bound = (bounds().far - bounds().far_slope * two_u) * kRoundoff;
    ASSERT_NEAR(y[i] / (wide * logistic), 1.0, bound) << "x = " << x[i];
    ASSERT_NEAR(dx[i] / slope, 1.0, bounds().far_gradient * bound) << "x = " << x[i];
  }
}

TEST_P(GeluKernels, TakeEveryInput) {
  const auto [y, dx] = results({kNan, kInfinity, 3e38F, -12.0F, -13.0F, -1e3F, -1e10F, -3.4e38F});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(dx[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 3e38F);
  EXPECT_EQ(dx[2], 1.0F);
  for (std::size_t left = 3; left < y.size(); ++left) {
    EXPECT_EQ(y[left], 0.0F) << left;
    EXPECT_LE(std::abs(dx[left]), 1e-34F) << left;  // bound: the slope at -12 is below it
  }
}

TEST_P(GeluKernels, BackwardIsTheSlopeOfForward) {
  const double h = 1e-4;
  Floats x;
  for (float at = -6.0F; at < 6.0F; at += 0.37F) { x.push_back(at); }
  DeviceArray<float> in{bench(), x}, dy{bench(), filled(std::ssize(x), 1.5F)};
  DeviceArray<float> dx{bench(), std::ssize(x)};
  table().gelu_backward(in.data(), dy.data(), dx.data(), std::ssize(x), stream());
  const Floats slopes = dx.read();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wide = x[i];
    EXPECT_NEAR(slopes[i], 1.5 * (gelu(wide + h) - gelu(wide - h)) / (2 * h),
                (bounds().backward + 2) * kRoundoff * 1.5 + h * h)
        << wide;
  }
}

TEST_P(GeluKernels, BitsDependOnTheElementAloneAlsoInPlace) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t elems : kSizes) {
      const Floats x = random_floats(elems, 2, 3.0F), dy = random_floats(elems, 3);
      DeviceValues in{bench(), x, dtype}, gradient{bench(), dy, dtype};
      DeviceValues y{bench(), elems, dtype}, dx{bench(), elems, dtype};
      table().gelu_forward(in, y, elems, stream());
      table().gelu_backward(in, gradient, dx, elems, stream());
      DeviceValues cut_y{bench(), x, dtype, 1}, cut_dx{bench(), dy, dtype, 3};
      const auto cuts = random_cuts(elems, 5, 4);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const Values at_y = cut_y.values().at(cuts[i]), at_dx = cut_dx.values().at(cuts[i]);
        table().gelu_backward(at_y, at_dx, at_dx, cuts[i + 1] - cuts[i], stream());
        table().gelu_forward(at_y, at_y, cuts[i + 1] - cuts[i], stream());
      }
      EXPECT_EQ(cut_y.read(), y.read()) << elems;
      EXPECT_EQ(cut_dx.read(), dx.read()) << elems;
    }
  }
}

TEST_P(GeluKernels, RefuseMixedDtypesAndFp64) {
  DeviceArray<float> x{bench(), 4};
  EXPECT_THROW(table().gelu_forward(x.data(), Values{x.data(), DType::bf16}, 2, stream()),
               ContractError);
  const OwnedStream side = device().make_compute_stream();  // the error ends it on a CPU
  EXPECT_THROW(
      table().gelu_forward({x.data(), DType::fp64}, {x.data(), DType::fp64}, 1, side.get()),
      ContractError);
}

}  // namespace
}  // namespace tessera::kernels::gelu_test
