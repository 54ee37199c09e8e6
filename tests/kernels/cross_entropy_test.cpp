#include "kernels/cross_entropy/cross_entropy.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

struct Problem {
  Floats logits;
  std::vector<std::int32_t> targets;
  double loss = 0.25;
  float gradient_scale = 0.125F;
  double loss_scale = 0.5;

  Problem(std::int64_t rows, std::int64_t classes, float stddev = 3.0F)
      : logits{random_floats(rows * classes, 1, stddev)}, rows_{rows}, classes_{classes} {
    std::mt19937 generator{2};
    std::uniform_int_distribution<std::int64_t> uniform{0, classes - 1};
    for (std::int64_t r = 0; r < rows; ++r) {
      targets.push_back(static_cast<std::int32_t>(uniform(generator)));
    }
  }
  CrossEntropy args() {
    return {logits.data(), targets.data(), &loss, rows_, classes_, gradient_scale, loss_scale};
  }

 private:
  std::int64_t rows_;
  std::int64_t classes_;
};

TEST(CrossEntropyReference, ByHand) {
  Floats logits{0.0F, std::log(3.0F), 5.0F, 5.0F};
  const std::vector<std::int32_t> targets{1, 0};
  double loss = 1.0;
  reference::cross_entropy({logits.data(), targets.data(), &loss, 2, 2, 4.0F, 10.0}, Stream{});
  EXPECT_NEAR(loss, 1.0 + 10 * (std::log(4.0 / 3.0) + std::log(2.0)), 1e-6);
  EXPECT_NEAR(logits[0], 4 * 0.25, 1e-6);
  EXPECT_NEAR(logits[1], 4 * (0.75 - 1), 1e-6);
  EXPECT_NEAR(logits[2], 4 * (0.5 - 1), 1e-6);
  EXPECT_NEAR(logits[3], 4 * 0.5, 1e-6);
}

using CrossEntropyTest = KernelTest;

TEST_F(CrossEntropyTest, MatchesReference) {
  for (const std::int64_t classes : {1, 2, 7, 8, 9, 255, 256, 257, 1023, 1025, 5003}) {
    for (const float stddev : {0.1F, 3.0F, 50.0F}) {
      SCOPED_TRACE(testing::Message() << classes << " classes, deviation " << stddev);
      Problem expected{9, classes, stddev}, actual{9, classes, stddev};
      Placed logits{actual.logits, 1};
      reference::cross_entropy(expected.args(), Stream{});
      CrossEntropy args = actual.args();
      args.logits = logits.data();
      cpu_.cross_entropy(args, stream());
      EXPECT_NEAR(actual.loss, expected.loss, 1e-6 * std::max(1.0, expected.loss));
      EXPECT_LE(largest_difference(logits.values(), expected.logits), 0.125 * 1e-6);
      EXPECT_TRUE(logits.guarded());
    }
  }
}

// More rows than are worked on together: each meets its own target, and the losses are added in
// the rows' order.
TEST_F(CrossEntropyTest, ManyRowsGiveTheBitsOfEachAlone) {
  constexpr std::int64_t rows = 1200, classes = 13;
  Problem together{rows, classes}, apart{rows, classes};
  double sum = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    double loss = 0.0;
    cpu_.cross_entropy({apart.logits.data() + r * classes, apart.targets.data() + r, &loss, 1,
                        classes, apart.gradient_scale, 1.0},
                       stream());
    sum += loss;
  }
  cpu_.cross_entropy(together.args(), stream());
  EXPECT_EQ(together.loss, 0.25 + 0.5 * sum);
  EXPECT_TRUE(same_bits(together.logits, apart.logits));
}

TEST_F(CrossEntropyTest, GapsBetweenRowsAreNeitherReadNorWritten) {
  constexpr std::int64_t rows = 5, classes = 101, stride = 128;
  Problem dense{rows, classes}, spread{rows, classes}, checked{rows, classes};
  spread.logits = with_gaps(spread.logits, classes, stride);
  checked.logits = spread.logits;
  const auto with_stride = [](Problem& problem) {
    CrossEntropy args = problem.args();
    args.stride = stride;
    return args;
  };
  cpu_.cross_entropy(dense.args(), stream());
  cpu_.cross_entropy(with_stride(spread), stream());
  reference::cross_entropy(with_stride(checked), Stream{});
  EXPECT_EQ(spread.loss, dense.loss);
  EXPECT_TRUE(same_bits(spread.logits, with_gaps(dense.logits, classes, stride)));
  EXPECT_LE(largest_difference(without_gaps(checked.logits, classes, stride), dense.logits), 1e-6);
  EXPECT_NEAR(checked.loss, dense.loss, 1e-6);
}

TEST_F(CrossEntropyTest, GradientIsTheSlopeOfTheLoss) {
  Problem problem{1, 11};
  problem.gradient_scale = 1.0F;
  const Floats before = problem.logits;
  const auto loss = [&](std::size_t moved, double by) {
    double sum = 0.0;
    for (std::size_t c = 0; c < before.size(); ++c) {
      sum += std::exp(static_cast<double>(before[c]) + (c == moved ? by : 0.0));
    }
    const auto target = static_cast<std::size_t>(problem.targets[0]);
    return std::log(sum) - static_cast<double>(before[target]) - (target == moved ? by : 0.0);
  };
  cpu_.cross_entropy(problem.args(), stream());
  for (std::size_t c = 0; c < before.size(); ++c) {
    EXPECT_NEAR(problem.logits[c], (loss(c, 1e-5) - loss(c, -1e-5)) / 2e-5, 1e-6) << c;
  }
}

TEST_F(CrossEntropyTest, LogitsOfAnySizeAreSafe) {
  Floats logits{3e38F,      -3e38F, 0.0F,   1.0F,         // sure of class 0
                -3e38F,     -3e38F, -3e38F, -3e38F,       // undecided, far below
                -kInfinity, 2.0F,   2.0F,   -kInfinity};  // two classes are impossible
  const std::vector<std::int32_t> targets{0, 3, 1};
  double loss = 0.0;
  cpu_.cross_entropy({logits.data(), targets.data(), &loss, 3, 4, 1.0F, 1.0}, stream());
  EXPECT_NEAR(loss, std::log(4.0) + std::log(2.0), 1e-6);
  EXPECT_EQ(logits, (Floats{0, 0, 0, 0, 0.25F, 0.25F, 0.25F, -0.75F, 0, -0.5F, 0.5F, 0}));
}

TEST_F(CrossEntropyTest, NanInOneLogitShowsInTheLoss) {
  for (const std::size_t at : {0U, 5U, 8U}) {
    Problem problem{1, 9};
    problem.logits[at] = kNan;
    cpu_.cross_entropy(problem.args(), stream());
    EXPECT_TRUE(std::isnan(problem.loss)) << at;
  }
}

TEST_F(CrossEntropyTest, ScaleZeroLeavesTheLogitsAndGivesTheSameLoss) {
  for (const std::int64_t classes : {9, 1024, 2500}) {
    Problem trained{5, classes}, watched{5, classes};
    watched.gradient_scale = 0.0F;
    const Floats before = watched.logits;
    cpu_.cross_entropy(trained.args(), stream());
    cpu_.cross_entropy(watched.args(), stream());
    EXPECT_EQ(watched.loss, trained.loss) << classes;
    EXPECT_TRUE(same_bits(watched.logits, before)) << classes;
    reference::cross_entropy(watched.args(), Stream{});
    EXPECT_TRUE(same_bits(watched.logits, before)) << classes;
  }
}

TEST_F(CrossEntropyTest, AScaleInMemoryMultipliesTheGradientAndNotTheLoss) {
  for (const float scale : {1.0F, 65'536.0F, 0.25F}) {
    Problem plain{9, 257}, scaled{9, 257}, expected{9, 257};
    CrossEntropy args = scaled.args();
    args.dynamic_scale = &scale;
    cpu_.cross_entropy(plain.args(), stream());
    cpu_.cross_entropy(args, stream());
    EXPECT_EQ(scaled.loss, plain.loss);
    for (float& value : plain.logits) { value *= scale; }
    EXPECT_TRUE(same_bits(scaled.logits, plain.logits)) << "a power of two";

    args = expected.args();
    args.dynamic_scale = &scale;
    reference::cross_entropy(args, Stream{});
    EXPECT_NEAR(expected.loss, plain.loss, 1e-6 * plain.loss);
    EXPECT_LE(largest_difference(scaled.logits, expected.logits),
              0.125 * 1e-6 * static_cast<double>(scale));
  }
}

TEST_F(CrossEntropyTest, BitsDoNotDependOnTheAddress) {
  Problem expected{5, 1333};
  const Floats before = expected.logits;
  cpu_.cross_entropy(expected.args(), stream());
  for (std::size_t offset = 1; offset < 17; ++offset) {
    Problem actual{5, 1333};
    Placed logits{before, offset};
    CrossEntropy args = actual.args();
    args.logits = logits.data();
    cpu_.cross_entropy(args, stream());
    EXPECT_EQ(actual.loss, expected.loss) << offset;
    EXPECT_TRUE(same_bits(logits.values(), expected.logits)) << offset;
  }
}

}  // namespace
}  // namespace tessera::kernels
