#include "kernels/glu/glu.hpp"

#include "kernels/gelu/gelu.hpp"
#include "kernels/values.hpp"

namespace tessera::kernels::glu_test {
namespace {

TEST(GLUReference, ByHand) {
  const Floats gate{0, 1, -1, 100}, up{5, 2, 2, 3}, dy{1, 1, 1, 2};
  Floats y(4), dgate(4), dup(4);
  reference::glu_forward({gate.data(), up.data(), y.data(), 2, 2}, Stream{});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_NEAR(y[1], 2 * 0.7310586F, roundings(8, 1.5));
  EXPECT_NEAR(y[2], -2 * 0.2689414F, roundings(8, 0.6));
  EXPECT_EQ(y[3], 300.0F);
  reference::glu_backward({gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), 2, 2},
                          Stream{});
  EXPECT_EQ(dgate[0], 2.5F);  // the slope of silu at 0 is one half
  EXPECT_EQ(dup[0], 0.0F);
  EXPECT_EQ(dgate[3], 6.0F);
  EXPECT_EQ(dup[3], 200.0F);
}

TEST(GLUReference, GeluByHand) {
  const Floats gate{0, 1, -1, 100}, up{5, 2, 2, 3}, dy{1, 1, 1, 2};
  Floats y(4), dgate(4), dup(4);
  reference::glu_forward({gate.data(), up.data(), y.data(), 2, 2, 0, Gate::gelu_tanh}, Stream{});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_NEAR(y[1], 2 * 0.841192F, 2e-6F);   // bound: six digits
  EXPECT_NEAR(y[2], 2 * -0.158808F, 2e-6F);  // bound: six digits
  EXPECT_EQ(y[3], 300.0F);
  reference::glu_backward(
      {gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), 2, 2, 0, Gate::gelu_tanh},
      Stream{});
  EXPECT_EQ(dgate[0], 2.5F);  // the slope of GELU at 0 is one half
  EXPECT_EQ(dup[0], 0.0F);
  EXPECT_NEAR(dup[1], 0.841192F, 1e-6F);  // bound: six digits
  EXPECT_EQ(dgate[3], 6.0F);
  EXPECT_EQ(dup[3], 200.0F);
}

/// The function of the gate in float64, and the error bounds of a backend in fp32 roundoffs,
/// besides the rounding of stored results: of y, relative to y or to gate * up; of dgate relative
/// to dy * up; of dup relative to dy * gate.
struct Function {
  Gate gate;
  double (*value)(double);
  double forward;
  bool relative;
  double dgate, dup;
};
// The functions use the logistic function of the gate, or of 2u. Its error is at most 8 roundoffs
// of its factor, and |gate| (1 - s) s <= 0.3; for GELU see gelu.hpp. Two products add two
// roundings.
constexpr Function kFunctions[] = {
    {Gate::silu, [](double x) { return x / (1 + std::exp(-x)); }, 12, true, 20, 20},
    {Gate::gelu_tanh, [](double x) { return reference::gelu(x, GELU::tanh); }, 8, false, 24, 8},
};

struct Shape {
  std::int64_t rows, columns;
};
// Whole packs and not, one row and many.
constexpr Shape kShapes[] = {{0, 8}, {1, 1}, {3, 7}, {5, 8}, {33, 31}, {70, 64}, {9, 1000}};

/// Gate and up as halves of one matrix, `gap` elements between its rows.
struct Problem {
  Function function;
  Shape shape;
  std::int64_t row;
  Floats both, dy;

  Problem(DType dtype, const Function& in, const Shape& of, std::int64_t gap)
      : function{in},
        shape{of},
        row{2 * of.columns + gap},
        both{rounded(dtype, random_floats(of.rows * row, 1, 3.0F))},
        dy{rounded(dtype, random_floats(of.rows * of.columns, 2))} {}

  [[nodiscard]] GLUForward forward(Values in, Values y) const {
    return {in, in.at(shape.columns), y, shape.rows, shape.columns, row, function.gate};
  }
  [[nodiscard]] GLUBackward backward(Values in, ConstValues gradient, Values out) const {
    return {in,         in.at(shape.columns), gradient, out,          out.at(shape.columns),
            shape.rows, shape.columns,        row,      function.gate};
  }
};

class GLUKernels : public BackendTest {
 protected:
  /// body(dtype, problem).
  template <class Body>
  static void for_all(Body body) {
    for (const Function& function : kFunctions) {
      for (const DType dtype : kValueDTypes) {
        for (const Shape& shape : kShapes) {
          for (const std::int64_t gap : {0, 3, 8}) {
            SCOPED_TRACE(testing::Message()
                         << shape.rows << " x " << shape.columns << " + " << gap << ", "
                         << to_string(dtype) << ", function " << static_cast<int>(function.gate));
            body(dtype, Problem{dtype, function, shape, gap});
          }
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, GLUKernels, backends(), backend_name);

TEST_P(GLUKernels, ForwardIsCloseToFloat64) {
  for_all([&](DType dtype, Problem problem) {
    Floats expected(problem.dy.size());
    reference::glu_forward(problem.forward(problem.both.data(), expected.data()), Stream{});
    DeviceValues in{bench(), problem.both, dtype};
    DeviceValues y{bench(), std::ssize(expected), dtype};
    table().glu_forward(problem.forward(in, y), stream());
    const auto columns = static_cast<std::size_t>(problem.shape.columns);
    const auto row = static_cast<std::size_t>(problem.row);
    expect_within(y.floats(), expected, dtype, [&](std::size_t i) {
      const std::size_t at = i / columns * row + i % columns;
      const double product =
          static_cast<double>(problem.both[at]) * static_cast<double>(problem.both[at + columns]);
      const double size = problem.function.relative ? static_cast<double>(expected[i]) : product;
      return problem.function.forward * kRoundoff * std::abs(size);
    });
  });
}

TEST_P(GLUKernels, BackwardIsCloseToFloat64AndLeavesGapsAlone) {
  for_all([&](DType dtype, Problem problem) {
    Floats expected = problem.both;
    reference::glu_backward(
        problem.backward(problem.both.data(), problem.dy.data(), expected.data()), Stream{});
    DeviceValues in{bench(), problem.both, dtype}, out{bench(), problem.both, dtype};
    DeviceValues dy{bench(), problem.dy, dtype};
    table().glu_backward(problem.backward(in, dy, out), stream());
    const auto columns = static_cast<std::size_t>(problem.shape.columns);
    const auto row = static_cast<std::size_t>(problem.row);
    expect_within(out.floats(), expected, dtype, [&](std::size_t i) {
      if (i % row >= 2 * columns) { return 0.0; }
      const bool of_gate = i % row < columns;
      const double other = problem.both[of_gate ? i + columns : i - columns];
      const double gradient = problem.dy[i / row * columns + i % row % columns];
      const double bound = of_gate ? problem.function.dgate : problem.function.dup;
      return bound * kRoundoff * std::abs(gradient * other);
    });
  });
}

// dgate and dup may overwrite gate and up.
TEST_P(GLUKernels, HaveTheSameBitsInPlaceAndAtAnyAddress) {
  for_all([&](DType dtype, const Problem& problem) {
    DeviceValues in{bench(), problem.both, dtype}, out{bench(), problem.both, dtype};
    DeviceValues dy{bench(), problem.dy, dtype};
    table().glu_backward(problem.backward(in, dy, out), stream());
    for (const std::int64_t offset : {0, 1}) {
      DeviceValues moved{bench(), problem.both, dtype, offset};
      DeviceValues y{bench(), problem.dy, dtype, offset};
      table().glu_backward(problem.backward(moved, y, moved), stream());
      EXPECT_EQ(moved.read(), out.read()) << offset;
    }
  });
}

TEST_P(GLUKernels, BackwardIsTheSlopeOfForward) {
  const double h = 1e-4;
  Floats gate;
  for (float at = -9.0F; at < 9.0F; at += 0.37F) { gate.push_back(at); }
  const std::int64_t elems = std::ssize(gate);
  DeviceArray<float> in{bench(), gate}, up{bench(), filled(elems, 1.5F)};
  DeviceArray<float> dy{bench(), filled(elems, 2.0F)}, dgate{bench(), elems}, dup{bench(), elems};
  for (const Function& function : kFunctions) {
    const auto f = function.value;
    table().glu_backward(
        {in.data(), up.data(), dy.data(), dgate.data(), dup.data(), 1, elems, 0, function.gate},
        stream());
    const Floats slopes = dgate.read(), values = dup.read();
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double x = gate[i];
      EXPECT_NEAR(slopes[i], 3 * (f(x + h) - f(x - h)) / (2 * h),
                  roundings(function.dgate + 2, 3.0) + 3 * h * h)
          << x;
      const double size = 2 * std::abs(function.relative ? f(x) : x);
      EXPECT_NEAR(values[i], 2 * f(x), roundings(function.forward + 2, size)) << x;
    }
  }
}

TEST_P(GLUKernels, TakeEveryFiniteGate) {
  const Floats gate{kNan, 3e38F, 90.0F, -80.0F, -88.0F, -90.0F, -1e4F, -3e38F};
  DeviceArray<float> in{bench(), gate}, ones{bench(), filled(8, 1.0F)};
  DeviceArray<float> y{bench(), 8}, dgate{bench(), 8}, dup{bench(), 8};
  for (const Function& one : kFunctions) {
    table().glu_forward({in.data(), ones.data(), y.data(), 1, 8, 0, one.gate}, stream());
    table().glu_backward(
        {in.data(), ones.data(), ones.data(), dgate.data(), dup.data(), 1, 8, 0, one.gate},
        stream());
    const Floats values = y.read(), slopes = dgate.read(), ups = dup.read();
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(slopes[0]) && std::isnan(ups[0]));
    for (const std::size_t right : {1U, 2U}) {
      EXPECT_EQ(values[right], gate[right]);
      EXPECT_EQ(ups[right], gate[right]);
      EXPECT_EQ(slopes[right], 1.0F);
    }
    for (std::size_t left = 3; left < 8; ++left) {
      constexpr float most = 1e-30F;  // bound: 80 exp(-80) is below it
      EXPECT_NEAR(values[left], 0.0F, most) << left;
      EXPECT_NEAR(ups[left], 0.0F, most) << left;
      EXPECT_NEAR(slopes[left], 0.0F, most) << left;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::glu_test
