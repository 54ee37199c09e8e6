#include "kernels/swiglu/swiglu.hpp"

#include "kernels/values.hpp"

namespace tessera::kernels::swiglu_test {
namespace {

TEST(SwiGLUReference, ByHand) {
  const Floats gate{0, 1, -1, 100}, up{5, 2, 2, 3}, dy{1, 1, 1, 2};
  Floats y(4), dgate(4), dup(4);
  reference::swiglu_forward({gate.data(), up.data(), y.data(), 2, 2}, Stream{});
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_NEAR(y[1], 2 * 0.7310586F, roundings(8, 1.5));
  EXPECT_NEAR(y[2], -2 * 0.2689414F, roundings(8, 0.6));
  EXPECT_EQ(y[3], 300.0F);
  reference::swiglu_backward({gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), 2, 2},
                             Stream{});
  EXPECT_EQ(dgate[0], 2.5F);  // the slope of silu at 0 is one half
  EXPECT_EQ(dup[0], 0.0F);
  EXPECT_EQ(dgate[3], 6.0F);
  EXPECT_EQ(dup[3], 200.0F);
}

struct Shape {
  std::int64_t rows, columns;
};
// Whole packs and not, one row and many.
constexpr Shape kShapes[] = {{0, 8}, {1, 1}, {3, 7}, {5, 8}, {33, 31}, {70, 64}, {9, 1000}};

/// Gate and up as halves of one matrix, `gap` elements between its rows.
struct Problem {
  Shape shape;
  std::int64_t row;
  Floats both, dy;

  Problem(DType dtype, const Shape& of, std::int64_t gap)
      : shape{of},
        row{2 * of.columns + gap},
        both{rounded(dtype, random_floats(of.rows * row, 1, 3.0F))},
        dy{rounded(dtype, random_floats(of.rows * of.columns, 2))} {}

  [[nodiscard]] SwiGLUForward forward(Values in, Values y) const {
    return {in, in.at(shape.columns), y, shape.rows, shape.columns, row};
  }
  [[nodiscard]] SwiGLUBackward backward(Values in, ConstValues gradient, Values out) const {
    return {in,         in.at(shape.columns), gradient, out, out.at(shape.columns),
            shape.rows, shape.columns,        row};
  }
};

class SwiGLUKernels : public BackendTest {
 protected:
  /// body(dtype, problem).
  template <class Body>
  static void for_all(Body body) {
    for (const DType dtype : kValueDTypes) {
      for (const Shape& shape : kShapes) {
        for (const std::int64_t gap : {0, 3, 8}) {
          SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << " + " << gap
                                          << ", " << to_string(dtype));
          body(dtype, Problem{dtype, shape, gap});
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, SwiGLUKernels, backends(), backend_name);

// Like GELU, it uses the logistic function. Its error is at most 8 roundoffs of its factor, and
// |gate| (1 - s) s <= 0.3.
TEST_P(SwiGLUKernels, ForwardIsCloseToFloat64) {
  for_all([&](DType dtype, Problem problem) {
    Floats expected(problem.dy.size());
    reference::swiglu_forward(problem.forward(problem.both.data(), expected.data()), Stream{});
    DeviceValues in{bench(), problem.both, dtype};
    DeviceValues y{bench(), std::ssize(expected), dtype};
    table().swiglu_forward(problem.forward(in, y), stream());
    expect_within(y.floats(), expected, dtype, [&](std::size_t i) {
      return 12 * kRoundoff * std::abs(static_cast<double>(expected[i]));
    });
  });
}

TEST_P(SwiGLUKernels, BackwardIsCloseToFloat64AndLeavesGapsAlone) {
  for_all([&](DType dtype, Problem problem) {
    Floats expected = problem.both;
    reference::swiglu_backward(
        problem.backward(problem.both.data(), problem.dy.data(), expected.data()), Stream{});
    DeviceValues in{bench(), problem.both, dtype}, out{bench(), problem.both, dtype};
    DeviceValues dy{bench(), problem.dy, dtype};
    table().swiglu_backward(problem.backward(in, dy, out), stream());
    const auto columns = static_cast<std::size_t>(problem.shape.columns);
    const auto row = static_cast<std::size_t>(problem.row);
    expect_within(out.floats(), expected, dtype, [&](std::size_t i) {
      if (i % row >= 2 * columns) { return 0.0; }
      const bool of_gate = i % row < columns;
      const double other = problem.both[of_gate ? i + columns : i - columns];
      const double gradient = problem.dy[i / row * columns + i % row % columns];
      return 20 * kRoundoff * std::abs(gradient * other);
    });
  });
}

// dgate and dup may overwrite gate and up.
TEST_P(SwiGLUKernels, HaveTheSameBitsInPlaceAndAtAnyAddress) {
  for_all([&](DType dtype, const Problem& problem) {
    DeviceValues in{bench(), problem.both, dtype}, out{bench(), problem.both, dtype};
    DeviceValues dy{bench(), problem.dy, dtype};
    table().swiglu_backward(problem.backward(in, dy, out), stream());
    for (const std::int64_t offset : {0, 1}) {
      DeviceValues moved{bench(), problem.both, dtype, offset};
      DeviceValues y{bench(), problem.dy, dtype, offset};
      table().swiglu_backward(problem.backward(moved, y, moved), stream());
      EXPECT_EQ(moved.read(), out.read()) << offset;
    }
  });
}

TEST_P(SwiGLUKernels, BackwardIsTheSlopeOfForward) {
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const double h = 1e-4;
  Floats gate;
  for (float at = -9.0F; at < 9.0F; at += 0.37F) { gate.push_back(at); }
  const std::int64_t elems = std::ssize(gate);
  DeviceArray<float> in{bench(), gate}, up{bench(), filled(elems, 1.5F)};
  DeviceArray<float> dy{bench(), filled(elems, 2.0F)}, dgate{bench(), elems}, dup{bench(), elems};
  table().swiglu_backward({in.data(), up.data(), dy.data(), dgate.data(), dup.data(), 1, elems},
                          stream());
  const Floats slopes = dgate.read(), values = dup.read();
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    EXPECT_NEAR(slopes[i], 3 * (silu(x + h) - silu(x - h)) / (2 * h),
                roundings(20 + 2, 3.0) + 3 * h * h)
        << x;
    EXPECT_NEAR(values[i], 2 * silu(x), roundings(12 + 2, 2 * std::abs(silu(x)))) << x;
  }
}

TEST_P(SwiGLUKernels, TakeEveryFiniteGate) {
  const Floats gate{kNan, 3e38F, 90.0F, -80.0F, -88.0F, -90.0F, -1e4F, -3e38F};
  DeviceArray<float> in{bench(), gate}, ones{bench(), filled(8, 1.0F)};
  DeviceArray<float> y{bench(), 8}, dgate{bench(), 8}, dup{bench(), 8};
  table().swiglu_forward({in.data(), ones.data(), y.data(), 1, 8}, stream());
  table().swiglu_backward({in.data(), ones.data(), ones.data(), dgate.data(), dup.data(), 1, 8},
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

}  // namespace
}  // namespace tessera::kernels::swiglu_test
