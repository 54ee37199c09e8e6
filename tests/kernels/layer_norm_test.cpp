#include "kernels/layer_norm/layer_norm.hpp"

#include <array>

#include "cuda/emulation.hpp"
#include "kernels/values.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::layer_norm_test {
namespace {

using test::Emulation;

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
// Sizes around a register's width; rows that a warp holds, that a block holds, and that are read
// again; whole packs and not; blocks of CUDA with fewer rows at the end.
constexpr Size kMatrices[] = {{0, 8},    {1, 1},     {1, 3},      {2, 3},      {5, 7},    {3, 8},
                              {2, 31},   {33, 31},   {31, 33},    {33, 32},    {5, 45},   {5, 257},
                              {65, 257}, {70, 100},  {9, 1024},   {3, 1025},   {8, 1600}, {300, 24},
                              {2, 5000}, {2, 8200},  {1, 12'288}, {2, 16'400}, {7, 768},  {6, 769},
                              {3, 1537}, {35, 2049}, {2, 8192},   {37, 40}};

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
    forward();
  }
  void forward() {
    reference::layer_norm_forward({x.data(), weight.data(), bias.data(), y.data(), mean.data(),
                                   inverse_std.data(), rows, columns},
                                  Stream{});
  }
  void backward() {
    reference::layer_norm_backward(
        {x.data(), weight.data(), mean.data(), inverse_std.data(), dy.data(), dx.data(),
         dweight.data(), dbias.data(), rows, columns},
        Stream{});
  }
};

TEST(LayerNormReference, ByHand) {
  const Floats x{1, 3}, weight{2, 10}, bias{0, 5};
  Floats y(2), mean(1), inverse_std(1);
  reference::layer_norm_forward(
      {x.data(), weight.data(), bias.data(), y.data(), mean.data(), inverse_std.data(), 1, 2},
      Stream{});
  EXPECT_EQ(mean[0], 2.0F);
  // The variance is 1, and 1e-5 is added to it, half of which its root has.
  const double inverse = 1.0 / std::sqrt(1.0 + static_cast<double>(kLayerNormEps));
  EXPECT_NEAR(inverse_std[0], inverse, roundings(4));
  EXPECT_NEAR(y[0], -2.0 * inverse, roundings(8, 2.0));
  EXPECT_NEAR(y[1], 5.0 + 10.0 * inverse, roundings(8, 15.0));
}

/// Offsets of all arrays, in elements. Each is offset by `stagger` more than the one before.
using Offsets = std::array<std::int64_t, 8>;
Offsets staggered(std::int64_t offset, std::int64_t stagger) {
  Offsets all{};
  for (std::int64_t& at : all) { at = std::exchange(offset, offset + stagger); }
  return all;
}

/// The same on a device in the requested dtypes.
struct OnDevice {
  DeviceValues x, weight, bias, y, dy, dx, dweight, dbias;
  DeviceArray<float> mean, inverse_std;
  std::int64_t rows, columns;

  OnDevice(DeviceBench& bench, DType dtype, DType other, const Problem& from,
           const Offsets& at = {})
      : x{bench, from.x, dtype, at[0]},
        weight{bench, from.weight, other, at[1]},
        bias{bench, from.bias, other, at[2]},
        y{bench, std::ssize(from.x), dtype, at[3]},
        dy{bench, from.dy, dtype, at[4]},
        dx{bench, from.dx, dtype, at[5]},
        dweight{bench, from.dweight, other, at[6]},
        dbias{bench, from.dbias, other, at[7]},
        mean{bench, from.mean},
        inverse_std{bench, from.inverse_std},
        rows{from.rows},
        columns{from.columns} {}
  LayerNormForward forward() {
    return {x, weight, bias, y, mean.data(), inverse_std.data(), rows, columns};
  }
  LayerNormBackward backward() {
    return {x, weight, mean.data(), inverse_std.data(), dy, dx, dweight, dbias, rows, columns};
  }
};

/// Mean magnitudes of a row.
struct Sizes {
  double x = 0.0;        ///< mean |x|
  double dnormal = 0.0;  ///< mean |dnormal|
  double scaled = 0.0;   ///< mean |dnormal * normal|
};

/// Largest difference from the reference, besides the rounding of stored values.
class Bounds {
 public:
  Bounds(const Problem& problem, DType other) : problem_{problem}, other_{other} {
    const auto n = static_cast<std::size_t>(problem.columns);
    rows_.resize(problem.mean.size());
    weight_sizes_.resize(n);
    bias_sizes_.resize(n);
    for (std::size_t c = 0; c < n; ++c) {
      weight_sizes_[c] = std::abs(static_cast<double>(problem.dweight[c]));
      bias_sizes_[c] = std::abs(static_cast<double>(problem.dbias[c]));
    }
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
      const double dy = problem.dy[i];
      Sizes& row = rows_[i / n];
      row.x += std::abs(static_cast<double>(problem.x[i])) / static_cast<double>(n);
      row.dnormal += std::abs(dnormal(i)) / static_cast<double>(n);
      row.scaled += std::abs(dnormal(i) * normal(i)) / static_cast<double>(n);
      weight_sizes_[i % n] += std::abs(dy * normal(i));
      bias_sizes_[i % n] += std::abs(dy);
    }
  }
  virtual ~Bounds() = default;

  [[nodiscard]] virtual double mean(std::size_t row) const = 0;
  [[nodiscard]] virtual double inverse_std(std::size_t row) const = 0;
  [[nodiscard]] virtual double y(std::size_t i) const = 0;
  [[nodiscard]] virtual double dx(std::size_t i) const = 0;
  [[nodiscard]] virtual double dweight(std::size_t column) const = 0;
  [[nodiscard]] virtual double dbias(std::size_t column) const = 0;

 protected:
  [[nodiscard]] std::int64_t columns() const { return problem_.columns; }
  [[nodiscard]] double inverse(std::size_t row) const { return problem_.inverse_std[row]; }
  [[nodiscard]] std::size_t row_of(std::size_t i) const { return i / weight_sizes_.size(); }
  [[nodiscard]] double weight(std::size_t i) const {
    return problem_.weight[i % weight_sizes_.size()];
  }
  [[nodiscard]] double normal(std::size_t i) const {
    return static_cast<double>(problem_.x[i] - problem_.mean[row_of(i)]) * inverse(row_of(i));
  }
  [[nodiscard]] double dnormal(std::size_t i) const {
    return static_cast<double>(problem_.dy[i]) * weight(i);
  }

  const Problem& problem_;
  DType other_;
  std::vector<Sizes> rows_;
  std::vector<double> weight_sizes_, bias_sizes_;
};

/// Fixed bounds. With two or fewer columns the deviation may be tiny and its inverse large.
class CpuBounds : public Bounds {
 public:
  using Bounds::Bounds;
  [[nodiscard]] double mean(std::size_t) const override { return 1e-6; }
  [[nodiscard]] double inverse_std(std::size_t row) const override { return scaled(1e-6, row); }
  [[nodiscard]] double y(std::size_t) const override { return columns() > 2 ? 8e-6 : 3e-5; }
  [[nodiscard]] double dx(std::size_t i) const override { return scaled(8e-6, row_of(i)); }
  [[nodiscard]] double dweight(std::size_t c) const override { return sum(weight_sizes_[c]); }
  [[nodiscard]] double dbias(std::size_t c) const override { return sum(bias_sizes_[c]); }

 private:
  [[nodiscard]] double scaled(double bound, std::size_t row) const {
    return columns() > 2 ? bound : bound * std::max(1.0, inverse(row));
  }
  /// 16-bit dtypes round the sum after every 32 rows.
  [[nodiscard]] double sum(double size) const {
    const auto blocks = static_cast<double>(ceil_div<std::int64_t>(problem_.rows, 32));
    return 1.5e-5 +
           (other_ == DType::fp32 ? 0.0 : std::max(0.0, blocks - 1)) * rounding(other_, size);
  }
};

/// The mean carries the additions of one thread (at most 64 here) into every result; the deviation
/// carries half of the variance's. Each operation adds a rounding. In backward one thread makes at
/// most 48 additions; for those of a column see layer_norm_backward.
class CudaBounds : public Bounds {
 public:
  using Bounds::Bounds;
  [[nodiscard]] double mean(std::size_t row) const override {
    return 66 * kRoundoff * rows_[row].x;
  }
  [[nodiscard]] double inverse_std(std::size_t row) const override {
    return 40 * kRoundoff * inverse(row);
  }
  [[nodiscard]] double y(std::size_t i) const override {
    const double gain = std::abs(weight(i));
    const double bias = std::abs(static_cast<double>(problem_.bias[i % weight_sizes_.size()]));
    return kRoundoff * (gain * inverse(row_of(i)) * 66 * rows_[row_of(i)].x +
                        44 * gain * std::abs(normal(i)) + bias);
  }
  [[nodiscard]] double dx(std::size_t i) const override {
    const Sizes& row = rows_[row_of(i)];
    return kRoundoff *
           (56 * inverse(row_of(i)) *
                (std::abs(dnormal(i)) + row.dnormal + std::abs(normal(i)) * row.scaled) +
            std::abs(static_cast<double>(problem_.dx[i])));
  }
  [[nodiscard]] double dweight(std::size_t c) const override { return steps() * weight_sizes_[c]; }
  [[nodiscard]] double dbias(std::size_t c) const override { return steps() * bias_sizes_[c]; }

 private:
  [[nodiscard]] double steps() const {
    return (89.0 + static_cast<double>(problem_.rows) / 256) * kRoundoff;
  }
};

class LayerNormKernels : public BackendTest {
 protected:
  static std::unique_ptr<Bounds> bounds(const Problem& problem, DType other) {
    if (on_cuda()) { return std::make_unique<CudaBounds>(problem, other); }
    return std::make_unique<CpuBounds>(problem, other);
  }
  void forward(OnDevice& on_device) { table().layer_norm_forward(on_device.forward(), stream()); }
  void backward(OnDevice& on_device) {
    table().layer_norm_backward(on_device.backward(), stream());
  }
  /// body(dtype of the activations, dtype of the parameters, size).
  template <class Body>
  static void for_all(Body body) {
    for (const DType dtype : kValueDTypes) {
      for (const DType other : kValueDTypes) {
        for (const Size& size : kMatrices) {
          SCOPED_TRACE(testing::Message() << size.rows << " x " << size.columns << ", "
                                          << to_string(dtype) << " and " << to_string(other));
          body(dtype, other, size);
          if (HasFatalFailure()) { return; }
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, LayerNormKernels, backends(), backend_name);

TEST_P(LayerNormKernels, ForwardIsWithinItsBound) {
  for_all([&](DType dtype, DType other, const Size& size) {
    const Problem expected{dtype, other, size};
    OnDevice actual{bench(), dtype, other, expected};
    actual.mean.poison();
    actual.inverse_std.poison();
    forward(actual);
    const auto most = bounds(expected, other);
    const Floats mean = actual.mean.read(), inverse_std = actual.inverse_std.read();
    for (std::size_t r = 0; r < mean.size(); ++r) {
      ASSERT_NEAR(mean[r], expected.mean[r], most->mean(r));
      ASSERT_NEAR(inverse_std[r], expected.inverse_std[r], most->inverse_std(r));
    }
    expect_within(actual.y.floats(), expected.y, dtype, [&](std::size_t i) { return most->y(i); });
  });
}

TEST_P(LayerNormKernels, BackwardIsWithinItsBound) {
  for_all([&](DType dtype, DType other, const Size& size) {
    Problem expected{dtype, other, size};
    OnDevice actual{bench(), dtype, other, expected};
    backward(actual);
    const Problem before = expected;
    const auto most = bounds(before, other);
    expected.backward();
    expect_within(actual.dx.floats(), expected.dx, dtype,
                  [&](std::size_t i) { return most->dx(i); });
    expect_within(actual.dweight.floats(), expected.dweight, other,
                  [&](std::size_t c) { return most->dweight(c); });
    expect_within(actual.dbias.floats(), expected.dbias, other,
                  [&](std::size_t c) { return most->dbias(c); });
  });
}

// The mean is a thousand times the deviation: the two-pass variance keeps its digits, E[x^2] -
// E[x]^2 would not. The error left is the rounding of x and of the mean, relative to the deviation
// of 2.
TEST_P(LayerNormKernels, ALargeMeanDoesNotDestroyTheVariance) {
  for (const std::int64_t columns : {300, 2000, 20'000}) {
    if (columns > 2000 && !on_cuda()) { continue; }  // the CPU's bound is for sizes of real models
    const Problem expected{DType::fp32, DType::fp32, {4, columns}, 2000.0F};
    OnDevice actual{bench(), DType::fp32, DType::fp32, expected};
    forward(actual);
    EXPECT_LE(largest_difference(actual.inverse_std.read(), expected.inverse_std), roundings(20));
    EXPECT_LE(largest_difference(actual.y.floats(), expected.y), roundings(8, 2000.0));
  }
}

TEST_P(LayerNormKernels, AConstantRowGivesTheBias) {
  Problem problem{DType::fp32, DType::fp32, {3, 77}};
  std::fill(problem.x.begin(), problem.x.end(), 3.0F);
  OnDevice actual{bench(), DType::fp32, DType::fp32, problem};
  forward(actual);
  const Floats y = actual.y.floats();
  for (std::size_t i = 0; i < y.size(); ++i) { ASSERT_EQ(y[i], problem.bias[i % 77]); }
  for (const float inverse_std : actual.inverse_std.read()) {
    // The mean may be off by a rounding, 3 u, of which the square is added to 1e-5.
    EXPECT_NEAR(inverse_std, 1.0F / std::sqrt(kLayerNormEps), roundings(32, 316.0));
  }
}

TEST_P(LayerNormKernels, FrozenParametersGetNoGradient) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Problem problem{dtype, DType::fp32, {33, 40}};
    OnDevice all{bench(), dtype, DType::fp32, problem};
    backward(all);
    for (const bool weight : {false, true}) {
      for (const bool bias : {false, true}) {
        OnDevice some{bench(), dtype, DType::fp32, problem};
        LayerNormBackward args = some.backward();
        if (!weight) { args.dweight = nullptr; }
        if (!bias) { args.dbias = nullptr; }
        table().layer_norm_backward(args, stream());
        EXPECT_EQ(some.dx.read(), all.dx.read());
        EXPECT_EQ(some.dweight.floats(), weight ? all.dweight.floats() : problem.dweight);
        EXPECT_EQ(some.dbias.floats(), bias ? all.dbias.floats() : problem.dbias);
      }
    }
  }
}

TEST_P(LayerNormKernels, OverwrittenGradientsHaveTheBitsOfThoseThatWereZero) {
  for (const DType other : kValueDTypes) {
    Problem problem{DType::bf16, other, {100, 72}};
    problem.dweight = problem.dbias = filled(72, 0.0F);
    OnDevice zero{bench(), DType::bf16, other, problem};
    backward(zero);
    problem.dweight = problem.dbias = filled(72, kNan);
    OnDevice anything{bench(), DType::bf16, other, problem};
    LayerNormBackward args = anything.backward();
    args.dweight_write = args.dbias_write = Write::overwrite;
    table().layer_norm_backward(args, stream());
    EXPECT_EQ(anything.dweight.read(), zero.dweight.read());
    EXPECT_EQ(anything.dbias.read(), zero.dbias.read());

    for (const bool weight : {false, true}) {  // one is overwritten, the other is added to
      problem.dweight = filled(72, weight ? 0.0F : 0.5F);
      problem.dbias = filled(72, weight ? 0.5F : 0.0F);
      OnDevice both{bench(), DType::bf16, other, problem};
      backward(both);
      (weight ? problem.dweight : problem.dbias) = filled(72, kNan);
      OnDevice one{bench(), DType::bf16, other, problem};
      args = one.backward();
      (weight ? args.dweight_write : args.dbias_write) = Write::overwrite;
      table().layer_norm_backward(args, stream());
      EXPECT_EQ(one.dweight.read(), both.dweight.read());
      EXPECT_EQ(one.dbias.read(), both.dbias.read());
    }
  }
}

TEST_P(LayerNormKernels, WithoutRowsOverwrittenGradientsAreZeroAndTheOthersStay) {
  for (const bool weight : {false, true}) {
    for (const bool bias : {false, true}) {
      const Problem problem{DType::fp32, DType::fp32, {0, 40}};
      OnDevice actual{bench(), DType::fp32, DType::fp32, problem};
      LayerNormBackward args = actual.backward();
      args.dweight_write = weight ? Write::overwrite : Write::add;
      args.dbias_write = bias ? Write::overwrite : Write::add;
      table().layer_norm_backward(args, stream());
      EXPECT_EQ(actual.dweight.floats(), weight ? filled(40, 0.0F) : problem.dweight);
      EXPECT_EQ(actual.dbias.floats(), bias ? filled(40, 0.0F) : problem.dbias);
    }
  }
}

// f = sum of dy * y in fp64; its slope along every input by central differences.
class Float64LayerNorm {
 public:
  explicit Float64LayerNorm(const Problem& from)
      : x(from.x.begin(), from.x.end()),
        weight(from.weight.begin(), from.weight.end()),
        dy(from.dy.begin(), from.dy.end()),
        columns_{static_cast<std::size_t>(from.columns)} {}

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

TEST_P(LayerNormKernels, BackwardIsTheSlopeOfForward) {
  const Problem before{DType::fp32, DType::fp32, {5, 13}};
  OnDevice actual{bench(), DType::fp32, DType::fp32, before};
  backward(actual);
  const Floats dx = actual.dx.floats(), dweight = actual.dweight.floats();
  Float64LayerNorm exact{before};
  for (std::size_t i = 0; i < exact.x.size(); ++i) {
    // bound: truncation h^2 = 1e-10; the kernel's own bounds for 13 columns of values up to 5
    EXPECT_NEAR(dx[i] - before.dx[i], exact.slope(exact.x[i]), 1e-5) << "dx " << i;
  }
  for (std::size_t c = 0; c < exact.weight.size(); ++c) {
    // bound: as above, for 5 rows
    EXPECT_NEAR(dweight[c] - before.dweight[c], exact.slope(exact.weight[c]), 1e-5) << c;
  }
}

TEST_P(LayerNormKernels, BitsDoNotDependOnTheAddresses) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Size size : {Size{40, 72}, Size{40, 75}, Size{3, 1600}, Size{2, 16'640}}) {
      const Problem problem{dtype, DType::fp32, size};
      OnDevice expected{bench(), dtype, DType::fp32, problem};
      forward(expected);
      backward(expected);
      const auto expect_same = [&](const Offsets& offsets) {
        SCOPED_TRACE(testing::PrintToString(offsets));
        OnDevice actual{bench(), dtype, DType::fp32, problem, offsets};
        forward(actual);
        backward(actual);
        EXPECT_EQ(actual.y.read(), expected.y.read());
        EXPECT_EQ(actual.dx.read(), expected.dx.read());
        EXPECT_EQ(actual.dweight.read(), expected.dweight.read());
        EXPECT_EQ(actual.dbias.read(), expected.dbias.read());
      };
      for (const std::int64_t offset : {1, 2, 7}) { expect_same(staggered(offset, 0)); }
      for (std::size_t array = 0; array < Offsets{}.size(); ++array) {
        Offsets one{};
        one[array] = 1;
        expect_same(one);
      }
      if (size.rows < 40) { continue; }
      for (std::int64_t offset = 1; offset < 17; ++offset) { expect_same(staggered(offset, 1)); }
    }
  }
}

class LayerNormOnCuda : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, LayerNormOnCuda, cuda_alone(), backend_name);

TEST_P(LayerNormOnCuda, SumsOverMoreRowsThanBlocksTakeAtFirstAreWithinTheirBound) {
  Problem expected{DType::bf16, DType::bf16, {16'421, 8}};  // chunks of 36 rows, the last of 5
  OnDevice actual{bench(), DType::bf16, DType::bf16, expected};
  table().layer_norm_backward(actual.backward(), stream());
  const Problem before = expected;
  const CudaBounds most{before, DType::bf16};
  expected.backward();
  expect_within(actual.dx.floats(), expected.dx, DType::bf16,
                [&](std::size_t i) { return most.dx(i); });
  expect_within(actual.dweight.floats(), expected.dweight, DType::bf16,
                [&](std::size_t c) { return most.dweight(c); });
  expect_within(actual.dbias.floats(), expected.dbias, DType::bf16,
                [&](std::size_t c) { return most.dbias(c); });
}

// A block processes four such rows at once: its last three have none.
TEST_P(LayerNormOnCuda, NumbersBehindTheLastRowsStatisticsAreNotUsed) {
  const Problem problem{DType::fp32, DType::fp32, {33, 40}};
  OnDevice expected{bench(), DType::fp32, DType::fp32, problem};
  table().layer_norm_backward(expected.backward(), stream());
  const auto followed_by_nans = [](Floats values) {
    values.insert(values.end(), 3, kNan);
    return values;
  };
  DeviceArray<float> mean{bench(), followed_by_nans(problem.mean)};
  DeviceArray<float> inverse_std{bench(), followed_by_nans(problem.inverse_std)};
  OnDevice actual{bench(), DType::fp32, DType::fp32, problem};
  LayerNormBackward args = actual.backward();
  args.mean = mean.data();
  args.inverse_std = inverse_std.data();
  table().layer_norm_backward(args, stream());
  EXPECT_EQ(actual.dx.read(), expected.dx.read());
  EXPECT_EQ(actual.dweight.read(), expected.dweight.read());
  EXPECT_EQ(actual.dbias.read(), expected.dbias.read());
}

TEST_P(LayerNormOnCuda, BitsDoNotDependOnTheDevice) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  for (const Size size : {Size{500, 40}, Size{70, 1600}, Size{70, 8200}}) {
    const Problem problem{DType::bf16, DType::fp32, size};
    const auto results = [&](int multiprocessors) {
      emulation.set_multiprocessors(multiprocessors);
      OnDevice on_device{bench(), DType::bf16, DType::fp32, problem};
      table().layer_norm_forward(on_device.forward(), stream());
      table().layer_norm_backward(on_device.backward(), stream());
      return std::vector{on_device.y.read(), on_device.dx.read(), on_device.dweight.read(),
                         on_device.dbias.read()};
    };
    const auto on_few = results(1);  // first: the workspace has no results of the other yet
    EXPECT_EQ(on_few, results(132)) << size.rows << " x " << size.columns;
  }
}

}  // namespace
}  // namespace tessera::kernels::layer_norm_test
