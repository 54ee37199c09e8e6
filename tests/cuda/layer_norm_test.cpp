#include "kernels/layer_norm/layer_norm.hpp"

#include "cuda/device_values.hpp"

namespace tessera::test {
namespace {

using LayerNormCuda = CudaTest;
namespace reference = kernels::reference;

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
// Rows that a warp holds, that a block holds, and that are read again; whole packs and not.
constexpr Size kMatrices[] = {{0, 8},    {1, 3},    {2, 31},     {33, 32},   {5, 257},
                              {70, 100}, {9, 1024}, {3, 1025},   {8, 1600},  {300, 24},
                              {2, 5000}, {2, 8200}, {1, 12'288}, {2, 16'400}};

/// Parameters and results of a row-wise normalisation, in fp32 for the reference.
struct Problem {
  std::int64_t rows, columns;
  Floats x, weight, bias, dy, dx, dweight, dbias;
  Floats y, mean, inverse_std;

  Problem(DType dtype, DType other, const Size& size, float offset = 0.5F)
      : rows{size.rows},
        columns{size.columns},
        weight{rounded(other, random_floats(columns, 2))},
        bias{rounded(other, random_floats(columns, 3))},
        dy{rounded(dtype, random_floats(rows * columns, 4))},
        dx{rounded(dtype, random_floats(rows * columns, 5))},
        dweight{rounded(other, random_floats(columns, 6))},
        dbias{rounded(other, random_floats(columns, 7))},
        y{filled(rows * columns, kNan)},
        mean{filled(rows, kNan)},
        inverse_std{filled(rows, kNan)} {
    x = random_floats(rows * columns, 1, 2.0F);
    for (float& value : x) { value += offset; }
    x = rounded(dtype, x);
    reference::layer_norm_forward({x.data(), weight.data(), bias.data(), y.data(), mean.data(),
                                   inverse_std.data(), rows, columns},
                                  Stream{});
  }
};

struct Sizes {
  double x = 0.0;        ///< mean |x|
  double dnormal = 0.0;  ///< mean |dnormal|
  double scaled = 0.0;   ///< mean |dnormal * normal|
};

Sizes row_sizes(const Problem& problem, std::size_t row) {
  Sizes sizes;
  const auto n = static_cast<std::size_t>(problem.columns);
  for (std::size_t c = 0; c < n; ++c) {
    const double x = problem.x[row * n + c];
    const double dnormal =
        static_cast<double>(problem.dy[row * n + c]) * static_cast<double>(problem.weight[c]);
    const double normal = (x - static_cast<double>(problem.mean[row])) *
                          static_cast<double>(problem.inverse_std[row]);
    sizes.x += std::abs(x) / static_cast<double>(n);
    sizes.dnormal += std::abs(dnormal) / static_cast<double>(n);
    sizes.scaled += std::abs(dnormal * normal) / static_cast<double>(n);
  }
  return sizes;
}

/// On the device, all in the dtypes asked for.
struct OnDevice {
  DeviceValues x, weight, bias, y, dy, dx, dweight, dbias;
  DeviceArray<float> mean, inverse_std;
  std::int64_t rows, columns;

  OnDevice(CudaBench& bench, DType dtype, DType other, const Problem& from, std::int64_t offset = 0)
      : x{bench, from.x, dtype, offset},
        weight{bench, from.weight, other, offset},
        bias{bench, from.bias, other, offset},
        y{bench, filled(std::ssize(from.x), kNan), dtype, offset},
        dy{bench, from.dy, dtype, offset},
        dx{bench, from.dx, dtype, offset},
        dweight{bench, from.dweight, other, offset},
        dbias{bench, from.dbias, other, offset},
        mean{bench, from.mean},
        inverse_std{bench, from.inverse_std},
        rows{from.rows},
        columns{from.columns} {}
  kernels::LayerNormForward forward() {
    return {x, weight, bias, y, mean.data(), inverse_std.data(), rows, columns};
  }
  kernels::LayerNormBackward backward() {
    return {x, weight, mean.data(), inverse_std.data(), dy, dx, dweight, dbias, rows, columns};
  }
};

// The mean carries the additions of one thread (at most 64 here) into every result, the deviation
// half of those of the variance; then a rounding for each operation.
TEST_F(LayerNormCuda, ForwardIsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    for (const DType other : kValueDTypes) {
      for (const Size& size : kMatrices) {
        SCOPED_TRACE(testing::Message() << size.rows << " x " << size.columns);
        Problem expected{dtype, other, size};
        OnDevice actual{bench(), dtype, other, expected};
        actual.mean.poison();
        actual.inverse_std.poison();
        table().layer_norm_forward(actual.forward(), stream());
        const Floats mean = actual.mean.read(), inverse_std = actual.inverse_std.read();
        const auto n = static_cast<std::size_t>(size.columns);
        for (std::size_t r = 0; r < mean.size(); ++r) {
          ASSERT_NEAR(mean[r], expected.mean[r], 66 * kRoundoff * row_sizes(expected, r).x);
          ASSERT_NEAR(inverse_std[r] / expected.inverse_std[r], 1.0, 40 * kRoundoff);
        }
        std::vector<Sizes> rows;
        for (std::size_t r = 0; r < mean.size(); ++r) { rows.push_back(row_sizes(expected, r)); }
        expect_within(actual.y.floats(), expected.y, dtype, [&](std::size_t i) {
          const std::size_t r = i / n;
          const double weight = std::abs(static_cast<double>(expected.weight[i % n]));
          const double inverse = expected.inverse_std[r];
          const double normal =
              std::abs(static_cast<double>(expected.x[i] - expected.mean[r])) * inverse;
          const double bias = std::abs(static_cast<double>(expected.bias[i % n]));
          return kRoundoff * (weight * inverse * 66 * rows[r].x + 44 * weight * normal + bias);
        });
      }
    }
  }
}

// A mean a thousand times the deviation: the two-pass variance keeps its digits, E[x^2] - E[x]^2
// would not. What is left is the rounding of x and of the mean, relative to the deviation of 2.
TEST_F(LayerNormCuda, ALargeMeanDoesNotDestroyTheVariance) {
  for (const std::int64_t columns : {300, 2000, 20'000}) {
    Problem expected{DType::fp32, DType::fp32, {4, columns}, 2000.0F};
    OnDevice actual{bench(), DType::fp32, DType::fp32, expected};
    table().layer_norm_forward(actual.forward(), stream());
    EXPECT_LE(kernels::largest_difference(actual.inverse_std.read(), expected.inverse_std), 1e-6);
    EXPECT_LE(kernels::largest_difference(actual.y.floats(), expected.y), 1e-3);
  }
}

TEST_F(LayerNormCuda, AConstantRowGivesTheBias) {
  Problem problem{DType::fp32, DType::fp32, {3, 77}};
  std::fill(problem.x.begin(), problem.x.end(), 3.0F);
  OnDevice actual{bench(), DType::fp32, DType::fp32, problem};
  table().layer_norm_forward(actual.forward(), stream());
  const Floats y = actual.y.floats();
  for (std::size_t i = 0; i < y.size(); ++i) { ASSERT_EQ(y[i], problem.bias[i % 77]); }
}

// Sums of a row: the additions of one thread, at most 48 here; of a column: BiasGradientKernel's.
TEST_F(LayerNormCuda, BackwardIsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    for (const DType other : kValueDTypes) {
      for (const Size& size : kMatrices) {
        SCOPED_TRACE(testing::Message() << size.rows << " x " << size.columns);
        Problem expected{dtype, other, size};
        OnDevice actual{bench(), dtype, other, expected};
        table().layer_norm_backward(actual.backward(), stream());

        const auto n = static_cast<std::size_t>(size.columns);
        Floats weight_sizes = filled(size.columns, 0.0F), bias_sizes = weight_sizes;
        std::vector<double> dx_bounds;
        std::vector<Sizes> rows;
        for (std::size_t r = 0; r < expected.mean.size(); ++r) {
          rows.push_back(row_sizes(expected, r));
        }
        for (std::size_t i = 0; i < expected.x.size(); ++i) {
          const std::size_t r = i / n;
          const double inverse = expected.inverse_std[r];
          const double normal = static_cast<double>(expected.x[i] - expected.mean[r]) * inverse;
          const double dy = expected.dy[i];
          const double dnormal = dy * static_cast<double>(expected.weight[i % n]);
          const Sizes& sizes = rows[r];
          dx_bounds.push_back(kRoundoff * (56 * inverse *
                                               (std::abs(dnormal) + sizes.dnormal +
                                                std::abs(normal) * sizes.scaled) +
                                           std::abs(static_cast<double>(expected.dx[i]))));
          weight_sizes[i % n] += static_cast<float>(std::abs(dy * normal));
          bias_sizes[i % n] += static_cast<float>(std::abs(dy));
        }
        const Floats dweight_before = expected.dweight, dbias_before = expected.dbias;
        reference::layer_norm_backward(
            {expected.x.data(), expected.weight.data(), expected.mean.data(),
             expected.inverse_std.data(), expected.dy.data(), expected.dx.data(),
             expected.dweight.data(), expected.dbias.data(), size.rows, size.columns},
            Stream{});
        expect_within(actual.dx.floats(), expected.dx, dtype,
                      [&](std::size_t i) { return dx_bounds[i]; });
        const double steps = 45.0 + static_cast<double>(size.rows) / 1024;
        expect_within(actual.dweight.floats(), expected.dweight, other, [&](std::size_t c) {
          return steps * kRoundoff *
                 static_cast<double>(weight_sizes[c] + std::abs(dweight_before[c]));
        });
        expect_within(actual.dbias.floats(), expected.dbias, other, [&](std::size_t c) {
          return steps * kRoundoff * static_cast<double>(bias_sizes[c] + std::abs(dbias_before[c]));
        });
      }
    }
  }
}

TEST_F(LayerNormCuda, FrozenParametersGetNoGradient) {
  const Problem problem{DType::bf16, DType::fp32, {33, 40}};
  OnDevice all{bench(), DType::bf16, DType::fp32, problem};
  table().layer_norm_backward(all.backward(), stream());
  for (const bool weight : {false, true}) {
    for (const bool bias : {false, true}) {
      OnDevice some{bench(), DType::bf16, DType::fp32, problem};
      kernels::LayerNormBackward args = some.backward();
      if (!weight) { args.dweight = nullptr; }
      if (!bias) { args.dbias = nullptr; }
      table().layer_norm_backward(args, stream());
      EXPECT_EQ(some.dx.read(), all.dx.read());
      EXPECT_EQ(some.dweight.floats(), weight ? all.dweight.floats() : problem.dweight);
      EXPECT_EQ(some.dbias.floats(), bias ? all.dbias.floats() : problem.dbias);
    }
  }
}

TEST_F(LayerNormCuda, BitsDoNotDependOnTheAddresses) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Size size : {Size{40, 72}, Size{3, 1600}, Size{2, 16'640}}) {
      const Problem problem{dtype, DType::fp32, size};
      OnDevice expected{bench(), dtype, DType::fp32, problem};
      table().layer_norm_forward(expected.forward(), stream());
      table().layer_norm_backward(expected.backward(), stream());
      for (const std::int64_t offset : {0, 1, 2, 7}) {
        OnDevice actual{bench(), dtype, DType::fp32, problem, offset};
        table().layer_norm_forward(actual.forward(), stream());
        table().layer_norm_backward(actual.backward(), stream());
        EXPECT_EQ(actual.y.read(), expected.y.read()) << offset;
        EXPECT_EQ(actual.dx.read(), expected.dx.read()) << offset;
        EXPECT_EQ(actual.dweight.read(), expected.dweight.read()) << offset;
        EXPECT_EQ(actual.dbias.read(), expected.dbias.read()) << offset;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
