#include "kernels/cross_entropy/cross_entropy.hpp"

#include "cuda/device_values.hpp"

namespace tessera::test {
namespace {

using CrossEntropyCuda = CudaTest;
namespace reference = kernels::reference;

struct Problem {
  std::int64_t rows, classes;
  Floats logits;
  std::vector<std::int32_t> targets;
  float gradient_scale = 0.125F;
  double loss_scale = 0.5;
  double loss = 0.25;

  Problem(std::int64_t rows_, std::int64_t classes_, float stddev = 3.0F)
      : rows{rows_}, classes{classes_}, logits{random_floats(rows * classes, 1, stddev)} {
    std::mt19937 generator{2};
    std::uniform_int_distribution<std::int64_t> uniform{0, classes - 1};
    for (std::int64_t r = 0; r < rows; ++r) {
      targets.push_back(static_cast<std::int32_t>(uniform(generator)));
    }
  }
  void run_reference() {
    reference::cross_entropy(
        {logits.data(), targets.data(), &loss, rows, classes, gradient_scale, loss_scale},
        Stream{});
  }
};

struct OnDevice {
  DeviceValues logits;
  DeviceArray<std::int32_t> targets;
  DeviceArray<double> loss;
  Problem problem;

  OnDevice(CudaBench& bench, DType dtype, const Problem& from, std::int64_t offset = 0)
      : logits{bench, from.logits, dtype, offset},
        targets{bench, from.targets},
        loss{bench, std::vector<double>{from.loss}},
        problem{from} {}
  kernels::CrossEntropy args() {
    return {logits,          targets.data(),         loss.data(),       problem.rows,
            problem.classes, problem.gradient_scale, problem.loss_scale};
  }
};

// What a row's sum of exponentials is off by: the additions of one thread, its exponentials, and
// the exponents, whose roundings the largest of them bounds.
double sum_error(const Problem& problem, float stddev) {
  const double additions = 16.0 + static_cast<double>(problem.classes) / 512;
  return (2 * additions + 8 + 8 * static_cast<double>(stddev)) * kRoundoff;
}

TEST_F(CrossEntropyCuda, IsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes : {1, 2, 7, 31, 32, 33, 255, 257, 1025, 5003, 50'257}) {
      for (const float stddev : {0.1F, 3.0F, 50.0F}) {
        SCOPED_TRACE(testing::Message() << classes << " classes, deviation " << stddev);
        Problem expected{classes > 10'000 ? 2 : 9, classes, stddev};
        expected.logits = rounded(dtype, expected.logits);
        OnDevice actual{bench(), dtype, expected, 1};
        expected.run_reference();
        table().cross_entropy(actual.args(), stream());
        const double error = sum_error(expected, stddev);
        EXPECT_NEAR(actual.loss.read()[0], expected.loss,
                    0.5 * static_cast<double>(expected.rows) * error);
        expect_within(actual.logits.floats(), expected.logits, dtype,
                      [&](std::size_t) { return 0.125 * (2 * error + kRoundoff); });
      }
    }
  }
}

// Each row meets its own target, wherever it stands, also where rows go over the workspace in
// pieces.
TEST_F(CrossEntropyCuda, ManyRowsGiveTheBitsOfEachAlone) {
  for (const DType dtype : kValueDTypes) {
    constexpr std::int64_t rows = 150, classes = 67;
    const Problem problem{rows, classes};
    OnDevice together{bench(), dtype, problem}, apart{bench(), dtype, problem};
    double sum = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) {
      DeviceArray<double> loss{bench(), std::vector<double>{0.0}};
      table().cross_entropy({apart.logits.values().at(r * classes), apart.targets.data() + r,
                             loss.data(), 1, classes, problem.gradient_scale, 1.0},
                            stream());
      sum += loss.read()[0];
    }
    table().cross_entropy(together.args(), stream());
    EXPECT_NEAR(together.loss.read()[0], 0.25 + 0.5 * sum, 1e-12);
    EXPECT_EQ(together.logits.read(), apart.logits.read());

    OnDevice pieces{bench(), dtype, problem};
    {
      const SmallWorkspace small{bench(), 256};  // 32 rows
      table().cross_entropy(pieces.args(), stream());
    }
    EXPECT_NEAR(pieces.loss.read()[0], 0.25 + 0.5 * sum, 1e-12);
    EXPECT_EQ(pieces.logits.read(), apart.logits.read());
  }
}

TEST_F(CrossEntropyCuda, GapsBetweenRowsAreNeitherReadNorWritten) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes : {3, 101, 5003}) {
      const std::int64_t stride = (classes + 63) / 64 * 64;
      Problem problem{5, classes};
      problem.logits = rounded(dtype, problem.logits);
      OnDevice dense{bench(), dtype, problem};
      table().cross_entropy(dense.args(), stream());
      problem.logits = with_gaps(problem.logits, classes, stride);
      OnDevice spread{bench(), dtype, problem};
      kernels::CrossEntropy args = spread.args();
      args.stride = stride;
      table().cross_entropy(args, stream());
      EXPECT_EQ(spread.loss.read(), dense.loss.read());
      EXPECT_TRUE(
          same_bits(spread.logits.floats(), with_gaps(dense.logits.floats(), classes, stride)));
    }
  }
}

TEST_F(CrossEntropyCuda, LogitsOfAnySizeAreSafe) {
  Problem problem{3, 4};
  problem.logits = {3e38F,      -3e38F, 0.0F,   1.0F,         // sure of class 0
                    -3e38F,     -3e38F, -3e38F, -3e38F,       // undecided, far below
                    -kInfinity, 2.0F,   2.0F,   -kInfinity};  // two classes are impossible
  problem.targets = {0, 3, 1};
  problem.gradient_scale = 1.0F;
  problem.loss_scale = 1.0;
  problem.loss = 0.0;
  OnDevice actual{bench(), DType::fp32, problem};
  table().cross_entropy(actual.args(), stream());
  EXPECT_NEAR(actual.loss.read()[0], std::log(4.0) + std::log(2.0), 1e-6);
  EXPECT_EQ(actual.logits.floats(),
            (Floats{0, 0, 0, 0, 0.25F, 0.25F, 0.25F, -0.75F, 0, -0.5F, 0.5F, 0}));
}

TEST_F(CrossEntropyCuda, ALogitThatIsNotFiniteShowsAsOnTheCpu) {
  for (const float value : {kNan, kInfinity}) {
    for (const std::size_t at : {0U, 40U, 99U}) {
      Problem problem{2, 100};
      problem.logits[at] = value;
      OnDevice actual{bench(), DType::fp32, problem};
      table().cross_entropy(actual.args(), stream());
      EXPECT_TRUE(std::isnan(actual.loss.read()[0])) << at;
      const Floats gradient = actual.logits.floats();
      for (std::size_t c = 0; c < 100; ++c) { EXPECT_TRUE(std::isnan(gradient[c])) << c; }
      for (std::size_t c = 100; c < 200; ++c) { EXPECT_TRUE(std::isfinite(gradient[c])) << c; }
    }
  }
  Problem nothing{1, 33};  // is possible
  std::fill(nothing.logits.begin(), nothing.logits.end(), -kInfinity);
  OnDevice actual{bench(), DType::fp32, nothing};
  table().cross_entropy(actual.args(), stream());
  EXPECT_TRUE(std::isnan(actual.loss.read()[0]));
  for (const float value : actual.logits.floats()) { EXPECT_TRUE(std::isnan(value)); }
}

TEST_F(CrossEntropyCuda, ScaleZeroLeavesTheLogitsAndGivesTheSameLoss) {
  for (const std::int64_t classes : {9, 1024, 2500}) {
    Problem problem{5, classes};
    OnDevice trained{bench(), DType::bf16, problem};
    problem.gradient_scale = 0.0F;
    OnDevice watched{bench(), DType::bf16, problem};
    table().cross_entropy(trained.args(), stream());
    table().cross_entropy(watched.args(), stream());
    EXPECT_EQ(watched.loss.read(), trained.loss.read()) << classes;
    EXPECT_EQ(watched.logits.floats(), rounded(DType::bf16, problem.logits)) << classes;
  }
}

TEST_F(CrossEntropyCuda, AScaleInMemoryMultipliesTheGradientAndNotTheLoss) {
  const Problem problem{9, 257};
  OnDevice plain{bench(), DType::fp32, problem};
  table().cross_entropy(plain.args(), stream());
  Floats expected = plain.logits.floats();
  for (float& value : expected) { value *= 65'536.0F; }
  OnDevice scaled{bench(), DType::fp32, problem};
  DeviceArray<float> scale{bench(), Floats{65'536.0F}};
  kernels::CrossEntropy args = scaled.args();
  args.dynamic_scale = scale.data();
  table().cross_entropy(args, stream());
  EXPECT_EQ(scaled.loss.read(), plain.loss.read());
  EXPECT_TRUE(same_bits(scaled.logits.floats(), expected)) << "a power of two";
}

TEST_F(CrossEntropyCuda, BitsDoNotDependOnTheAddress) {
  for (const DType dtype : kValueDTypes) {
    const Problem problem{5, 1333};
    OnDevice expected{bench(), dtype, problem};
    table().cross_entropy(expected.args(), stream());
    for (const std::int64_t offset : {0, 1, 2, 3, 7, 8}) {
      OnDevice actual{bench(), dtype, problem, offset};
      table().cross_entropy(actual.args(), stream());
      EXPECT_EQ(actual.loss.read(), expected.loss.read()) << offset;
      EXPECT_EQ(actual.logits.read(), expected.logits.read()) << offset;
    }
  }
}

}  // namespace
}  // namespace tessera::test
