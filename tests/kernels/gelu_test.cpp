#include "kernels/gelu/gelu.hpp"

#include <numbers>

#include "kernels/gelu/normal_cpu.hpp"
#include "kernels/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::gelu_test {
namespace {

/// A form in float64, without the cancellation of the reference far left of zero.
struct Precise {
  double value, slope;
  double exponent;  ///< that the value decreases with far left of zero
};

Precise precise_tanh(double x) {
  const double scale = 2 * std::sqrt(2 / std::numbers::pi);
  const double two_u = scale * x * (1 + 0.044715 * x * x);
  const double inner = scale * (1 + 3 * 0.044715 * x * x);
  const double logistic = 1 / (1 + std::exp(-two_u));
  return {x * logistic, logistic * (1 + x * inner / (1 + std::exp(two_u))), two_u};
}

Precise precise_exact(double x) {
  const double below = 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2);
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  return {x * below, below + x * density, -x * x / 2};
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
/// relative bounds are `far - far_slope * exponent`, and `far_gradient` times that. The exponent
/// (2u or -x^2 / 2) has a few roundings, which the exponential scales by at most 142; where |gelu|
/// is not tiny, it is below 20.
struct Bounds {
  double forward, backward, far, far_slope, far_gradient;
};

struct Form {
  GELU form;
  Precise (*precise)(double);
  Bounds cpu, cuda;
  float far_left;  ///< results are normal from here
  float zero;      ///< results are 0 from here
};
constexpr Form kForms[] = {
    {GELU::tanh, precise_tanh, {2, 13, 12, 3, 1}, {6, 20, 8, 5, 2}, -9.8F, -12.0F},
    {GELU::exact, precise_exact, {7, 8, 12, 1, 2}, {7, 8, 12, 4, 2}, -12.5F, -14.6F},
};

TEST(GeluReference, ByHand) {
  const Floats x{0.0F, 1.0F, -1.0F, 10.0F};
  Floats y(4), dx(4);
  const Floats dy{2.0F, 2.0F, 1.0F, 1.0F};
  for (const GELU form : {GELU::tanh, GELU::exact}) {
    reference::gelu_forward(x.data(), y.data(), 4, Stream{}, form);
    EXPECT_EQ(y[0], 0.0F);
    const float one = form == GELU::tanh ? 0.841192F : 0.841345F;
    EXPECT_NEAR(y[1], one, 1e-6F);         // bound: six digits
    EXPECT_NEAR(y[2], one - 1.0F, 1e-6F);  // bound: six digits
    EXPECT_EQ(y[3], 10.0F);
    reference::gelu_backward(x.data(), dy.data(), dx.data(), 4, Stream{}, form);
    EXPECT_EQ(dx[0], 1.0F);  // the slope at 0 is one half
    EXPECT_EQ(dx[3], 1.0F);
  }
}

// Every 97th float between the limits, eight per call.
TEST(TailRatio, StaysWithinItsBound) {
  constexpr std::uint32_t kEvery = TESSERA_SANITIZED ? 8 * 97 * 31 : 8 * 97;
  const auto limit = std::bit_cast<std::uint32_t>(14.5F);
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < limit; bits += kEvery) {
    Vec z;
    for (std::uint32_t l = 0; l < 8; ++l) { z[l] = std::bit_cast<float>(bits + 97 * l); }
    const Vec ratio = cpu::tail_ratio(z);
    for (std::uint32_t l = 0; l < 8; ++l) {
      const double wide = z[l];
      const double tail = 0.5 * std::erfc(wide * std::numbers::sqrt2 / 2);
      const double off = static_cast<double>(ratio[l]) / (tail * std::exp(wide * wide / 2)) - 1;
      worst = std::max(worst, std::abs(off) / kRoundoff);
    }
  }
  EXPECT_LT(worst, cpu::kTailRatioError);
  EXPECT_GT(worst, 0.5);  // the measure itself works
}

class GeluKernels : public BackendTest {
 protected:
  static const Bounds& bounds(const Form& form) { return on_cuda() ? form.cuda : form.cpu; }

  struct Results {
    Floats y, dx;
  };
  Results results(const Floats& x, GELU form) {
    DeviceArray<float> in{bench(), x}, dy{bench(), filled(std::ssize(x), 1.0F)};
    DeviceArray<float> y{bench(), in.elems()}, dx{bench(), in.elems()};
    table().gelu_forward(in.data(), y.data(), in.elems(), stream(), form);
    table().gelu_backward(in.data(), dy.data(), dx.data(), in.elems(), stream(), form);
    return {y.read(), dx.read()};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, GeluKernels, backends(), backend_name);

TEST_P(GeluKernels, ForwardIsCloseToFloat64) {
  for (const Form& form : kForms) {
    for (const DType dtype : kValueDTypes) {
      const Floats x = interesting(dtype);
      Floats expected(x.size());
      reference::gelu_forward(x.data(), expected.data(), std::ssize(x), Stream{}, form.form);
      DeviceValues in{bench(), x, dtype}, y{bench(), std::ssize(x), dtype};
      table().gelu_forward(in, y, std::ssize(x), stream(), form.form);
      expect_within(y.floats(), expected, dtype, [&](std::size_t i) {
        return bounds(form).forward * kRoundoff * std::abs(static_cast<double>(x[i]));
      });
    }
  }
}

TEST_P(GeluKernels, BackwardIsCloseToFloat64) {
  for (const Form& form : kForms) {
    for (const DType dtype : kValueDTypes) {
      const Floats x = interesting(dtype);
      for (const Floats& dy :
           {filled(std::ssize(x), 1.0F), rounded(dtype, random_floats(std::ssize(x), 2))}) {
        Floats expected(x.size());
        reference::gelu_backward(x.data(), dy.data(), expected.data(), std::ssize(x), Stream{},
                                 form.form);
        DeviceValues in{bench(), x, dtype}, gradient{bench(), dy, dtype};
        DeviceValues dx{bench(), std::ssize(x), dtype};
        table().gelu_backward(in, gradient, dx, std::ssize(x), stream(), form.form);
        expect_within(dx.floats(), expected, dtype, [&](std::size_t i) {
          return bounds(form).backward * kRoundoff * std::abs(static_cast<double>(dy[i]));
        });
      }
    }
  }
}

TEST_P(GeluKernels, BothKeepTheirPrecisionFarLeftOfZero) {
  for (const Form& form : kForms) {
    const Bounds& bounds = this->bounds(form);
    Floats x;
    for (int i = 2'000; static_cast<float>(i) * -1e-3F > form.far_left; ++i) {
      x.push_back(static_cast<float>(i) * -1e-3F);
    }
    const auto [y, dx] = results(x, form.form);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto [value, slope, exponent] = form.precise(x[i]);
      const double bound = (bounds.far - bounds.far_slope * exponent) * kRoundoff;
      ASSERT_NEAR(y[i] / value, 1.0, bound) << "x = " << x[i];
      ASSERT_NEAR(dx[i] / slope, 1.0, bounds.far_gradient * bound) << "x = " << x[i];
    }
  }
}

TEST_P(GeluKernels, TakeEveryInput) {
  for (const Form& form : kForms) {
    const auto [y, dx] = results(
        {kNan, kInfinity, 3e38F, form.zero, form.zero - 1, -1e3F, -1e10F, -3.4e38F}, form.form);
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(dx[0]));
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_EQ(dx[1], 1.0F);
    EXPECT_EQ(y[2], 3e38F);
    EXPECT_EQ(dx[2], 1.0F);
    for (std::size_t left = 3; left < y.size(); ++left) {
      EXPECT_EQ(y[left], 0.0F) << left;
      EXPECT_LE(std::abs(dx[left]), 1e-34F) << left;  // bound: the slope at `zero` is below it
    }
  }
}

TEST_P(GeluKernels, BackwardIsTheSlopeOfForward) {
  const double h = 1e-4;
  Floats x;
  for (float at = -6.0F; at < 6.0F; at += 0.37F) { x.push_back(at); }
  DeviceArray<float> in{bench(), x}, dy{bench(), filled(std::ssize(x), 1.5F)};
  DeviceArray<float> dx{bench(), std::ssize(x)};
  for (const Form& form : kForms) {
    table().gelu_backward(in.data(), dy.data(), dx.data(), std::ssize(x), stream(), form.form);
    const Floats slopes = dx.read();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wide = x[i];
      const double rise = form.precise(wide + h).value - form.precise(wide - h).value;
      EXPECT_NEAR(slopes[i], 1.5 * rise / (2 * h),
                  (bounds(form).backward + 2) * kRoundoff * 1.5 + h * h)
          << wide;
    }
  }
}

TEST_P(GeluKernels, BitsDependOnTheElementAloneAlsoInPlace) {
  for (const GELU form : {GELU::tanh, GELU::exact}) {
    for (const DType dtype : kValueDTypes) {
      for (const std::int64_t elems : kSizes) {
        const Floats x = random_floats(elems, 2, 3.0F), dy = random_floats(elems, 3);
        DeviceValues in{bench(), x, dtype}, gradient{bench(), dy, dtype};
        DeviceValues y{bench(), elems, dtype}, dx{bench(), elems, dtype};
        table().gelu_forward(in, y, elems, stream(), form);
        table().gelu_backward(in, gradient, dx, elems, stream(), form);
        DeviceValues cut_y{bench(), x, dtype, 1}, cut_dx{bench(), dy, dtype, 3};
        const auto cuts = random_cuts(elems, 5, 4);
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
          const Values at_y = cut_y.values().at(cuts[i]), at_dx = cut_dx.values().at(cuts[i]);
          table().gelu_backward(at_y, at_dx, at_dx, cuts[i + 1] - cuts[i], stream(), form);
          table().gelu_forward(at_y, at_y, cuts[i + 1] - cuts[i], stream(), form);
        }
        EXPECT_EQ(cut_y.read(), y.read()) << elems;
        EXPECT_EQ(cut_dx.read(), dx.read()) << elems;
      }
    }
  }
}

TEST_P(GeluKernels, RefuseMixedDtypesAndFp64) {
  DeviceArray<float> x{bench(), 4};
  EXPECT_THROW(
      table().gelu_forward(x.data(), Values{x.data(), DType::bf16}, 2, stream(), GELU::tanh),
      ContractError);
  const OwnedStream side = device().make_compute_stream();  // the error ends it on a CPU
  EXPECT_THROW(table().gelu_forward({x.data(), DType::fp64}, {x.data(), DType::fp64}, 1, side.get(),
                                    GELU::tanh),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels::gelu_test
