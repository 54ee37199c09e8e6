#include "kernels/layer_norm/layer_norm.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
constexpr Size kMatrices[] = {{0, 8},   {1, 1},    {2, 3},    {3, 8},   {33, 31},
                              {31, 33}, {70, 100}, {65, 257}, {8, 1600}};

struct Forward {
  Floats x, weight, bias, y, mean, inverse_std;

  Forward(std::int64_t rows, std::int64_t columns, float offset = 0.5F)
      : x{random_floats(rows * columns, 1, 2.0F)},
        weight{random_floats(columns, 2)},
        bias{random_floats(columns, 3)},
        y{filled(rows * columns, kNan)},
        mean{filled(rows, kNan)},
        inverse_std{filled(rows, kNan)},
        rows_{rows},
        columns_{columns} {
    for (float& value : x) { value += offset; }
  }
  LayerNormForward args() {
    return {x.data(),    weight.data(),      bias.data(), y.data(),
            mean.data(), inverse_std.data(), rows_,       columns_};
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
};

struct Backward {
  Floats x, weight, mean, inverse_std, dy, dx, dweight, dbias;

  Backward(std::int64_t rows, std::int64_t columns)
      : dy{random_floats(rows * columns, 4)},
        dx{random_floats(rows * columns, 5)},
        dweight{random_floats(columns, 6)},
        dbias{random_floats(columns, 7)},
        rows_{rows},
        columns_{columns} {
    Forward forward{rows, columns};
    reference::layer_norm_forward(forward.args(), Stream{});
    x = forward.x;
    weight = forward.weight;
    mean = forward.mean;
    inverse_std = forward.inverse_std;
  }
  LayerNormBackward args() {
    return {x.data(),  weight.data(), mean.data(),    inverse_std.data(),
            dy.data(), dx.data(),     dweight.data(), dbias.data(),
            rows_,     columns_};
  }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
};

TEST(LayerNormReference, ByHand) {
  const Floats x{1, 3}, weight{2, 10}, bias{0, 5};
  Floats y(2), mean(1), inverse_std(1);
  reference::layer_norm_forward(
      {x.data(), weight.data(), bias.data(), y.data(), mean.data(), inverse_std.data(), 1, 2},
      Stream{});
  EXPECT_EQ(mean[0], 2.0F);
  EXPECT_NEAR(inverse_std[0], 1.0F, 1e-5F);  // variance 1
  EXPECT_NEAR(y[0], -2.0F, 2e-5F);
  EXPECT_NEAR(y[1], 15.0F, 1e-4F);
}

using LayerNormTest = KernelTest;

TEST_F(LayerNormTest, ForwardMatchesReference) {
  for (const auto [rows, columns] : kMatrices) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    Forward expected{rows, columns}, actual{rows, columns};
    reference::layer_norm_forward(expected.args(), Stream{});
    cpu_.layer_norm_forward(actual.args(), stream());
    EXPECT_LE(largest_difference(actual.mean, expected.mean), 1e-6);
    if (columns > 2) {
      // Of two or fewer numbers the deviation may be tiny and its inverse large.
      EXPECT_LE(largest_difference(actual.inverse_std, expected.inverse_std), 1e-6);
      EXPECT_LE(largest_difference(actual.y, expected.y), 1e-5);
    }
  }
}

// A mean a thousand times the deviation: the two-pass variance keeps its digits, E[x^2] - E[x]^2
// would not. What is left is x's own rounding, 1000 u relative to the deviation of 2.
TEST_F(LayerNormTest, ALargeMeanDoesNotDestroyTheVariance) {
  Forward expected{4, 300, 2000.0F}, actual{4, 300, 2000.0F};
  reference::layer_norm_forward(expected.args(), Stream{});
  cpu_.layer_norm_forward(actual.args(), stream());
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_NEAR(actual.inverse_std[r], expected.inverse_std[r], 1e-6F);
  }
  EXPECT_LE(largest_difference(actual.y, expected.y), 1e-3);
}

TEST_F(LayerNormTest, AConstantRowGivesTheBias) {
  Forward args{1, 77};
  std::fill(args.x.begin(), args.x.end(), 3.0F);
  cpu_.layer_norm_forward(args.args(), stream());
  EXPECT_EQ(args.y, args.bias);
  EXPECT_NEAR(args.inverse_std[0], 1.0F / std::sqrt(kLayerNormEps), 1e-3F);
}

TEST_F(LayerNormTest, BackwardMatchesReference) {
  for (const auto [rows, columns] : kMatrices) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    Backward expected{rows, columns}, actual{rows, columns};
    reference::layer_norm_backward(expected.args(), Stream{});
    cpu_.layer_norm_backward(actual.args(), stream());
    if (columns > 2) { EXPECT_LE(largest_difference(actual.dx, expected.dx), 1e-5); }
    EXPECT_LE(largest_difference(actual.dweight, expected.dweight), 2e-5);
    EXPECT_LE(largest_difference(actual.dbias, expected.dbias), 2e-5);
  }
}

TEST_F(LayerNormTest, FrozenParametersGetNoGradient) {
  Backward expected{33, 40}, actual{33, 40};
  cpu_.layer_norm_backward(expected.args(), stream());
  const Floats before = actual.dweight;
  LayerNormBackward args = actual.args();
  args.dweight = nullptr;
  args.dbias = nullptr;
  cpu_.layer_norm_backward(args, stream());
  EXPECT_TRUE(same_bits(actual.dx, expected.dx));
  EXPECT_EQ(actual.dweight, before);
}

// f = sum of dy * y in fp64; its slope along every input by central differences.
class Float64LayerNorm {
 public:
  Float64LayerNorm(const Backward& from, std::int64_t columns)
      : x(from.x.begin(), from.x.end()),
        weight(from.weight.begin(), from.weight.end()),
        dy(from.dy.begin(), from.dy.end()),
        columns_{static_cast<std::size_t>(columns)} {}

  std::vector<double> x, weight, dy;

  [[nodiscard]] double value() const {
    double sum = 0.0;
    for (std::size_t r = 0; r < x.size(); r += columns_) {
      double mean = 0.0, square = 0.0;
      for (std::size_t c = 0; c < columns_; ++c) {
        mean += x[r + c] / static_cast<double>(columns_);
        square += x[r + c] * x[r + c] / static_cast<double>(columns_);
      }
      for (std::size_t c = 0; c < columns_; ++c) {
        sum += dy[r + c] * weight[c] * (x[r + c] - mean) /
               std::sqrt(square - mean * mean + static_cast<double>(kLayerNormEps));
      }
    }
    return sum;
  }
  [[nodiscard]] double slope(double& along) const {
    const double h = 1e-5, at = along;
    along = at + h;
    const double above = value();
    along = at - h;
    const double below = value();
    along = at;
    return (above - below) / (2 * h);
  }

 private:
  std::size_t columns_;
};

TEST_F(LayerNormTest, BackwardIsTheSlopeOfForward) {
  Backward args{5, 13};
  const Floats dx_before = args.dx, dweight_before = args.dweight;
  cpu_.layer_norm_backward(args.args(), stream());
  Float64LayerNorm exact{args, 13};
  for (std::size_t i = 0; i < exact.x.size(); ++i) {
    EXPECT_NEAR(args.dx[i] - dx_before[i], exact.slope(exact.x[i]), 1e-5) << "dx " << i;
  }
  for (std::size_t c = 0; c < exact.weight.size(); ++c) {
    EXPECT_NEAR(args.dweight[c] - dweight_before[c], exact.slope(exact.weight[c]), 1e-5) << c;
  }
}

TEST_F(LayerNormTest, BitsDoNotDependOnTheAddresses) {
  constexpr std::int64_t rows = 40, columns = 75;
  Forward forward{rows, columns};
  cpu_.layer_norm_forward(forward.args(), stream());
  Backward backward{rows, columns};
  const Floats dx = backward.dx, dweight = backward.dweight, dbias = backward.dbias;
  cpu_.layer_norm_backward(backward.args(), stream());
  for (std::size_t offset = 1; offset < 17; ++offset) {
    Placed x{forward.x, offset}, weight{forward.weight, offset + 1}, bias{forward.bias, offset + 2};
    Placed y{filled(rows * columns, kNan), offset + 3}, dy{backward.dy, offset + 4};
    LayerNormForward f = forward.args();
    f.x = x.data(), f.weight = weight.data(), f.bias = bias.data(), f.y = y.data();
    cpu_.layer_norm_forward(f, stream());
    EXPECT_TRUE(same_bits(y.values(), forward.y)) << offset;
    EXPECT_TRUE(y.guarded());

    Placed dx2{dx, offset + 5}, dweight2{dweight, offset + 6}, dbias2{dbias, offset + 7};
    LayerNormBackward b = backward.args();
    b.x = x.data(), b.weight = weight.data(), b.dy = dy.data(), b.dx = dx2.data();
    b.dweight = dweight2.data(), b.dbias = dbias2.data();
    cpu_.layer_norm_backward(b, stream());
    EXPECT_TRUE(same_bits(dx2.values(), backward.dx)) << offset;
    EXPECT_TRUE(same_bits(dweight2.values(), backward.dweight)) << offset;
    EXPECT_TRUE(same_bits(dbias2.values(), backward.dbias)) << offset;
    EXPECT_TRUE(dx2.guarded() && dweight2.guarded() && dbias2.guarded());
  }
}

}  // namespace
}  // namespace tessera::kernels
