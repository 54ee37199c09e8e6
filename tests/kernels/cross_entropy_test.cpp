#include "kernels/cross_entropy/cross_entropy.hpp"

#include "cuda/emulation.hpp"
#include "kernels/values.hpp"
#include "tessera/base/ignored_target.hpp"

namespace tessera::kernels::cross_entropy_test {
namespace {

using test::Emulation;

TEST(CrossEntropyReference, ByHand) {
  Floats logits{0.0F, std::log(3.0F), 5.0F, 5.0F};
  const std::vector<std::int32_t> targets{1, 0};
  double loss = 1.0;
  reference::cross_entropy({logits.data(), targets.data(), &loss, 2, 2, 4.0F, 10.0}, Stream{});
  // The logarithm of 3 is rounded, and the results.
  EXPECT_NEAR(loss, 1.0 + 10 * (std::log(4.0 / 3.0) + std::log(2.0)), roundings(2, 10.0));
  const double most = roundings(8, 2.0);
  EXPECT_NEAR(logits[0], 4 * 0.25, most);
  EXPECT_NEAR(logits[1], 4 * (0.75 - 1), most);
  EXPECT_NEAR(logits[2], 4 * (0.5 - 1), most);
  EXPECT_NEAR(logits[3], 4 * 0.5, most);
}

struct Problem {
  std::int64_t rows, classes;
  Floats logits;
  std::vector<std::int32_t> targets;
  float gradient_scale = 0.125F;
  double loss_scale = 0.5;
  double loss = 0.25;
  std::int64_t stride = 0;

  Problem(std::int64_t rows_, std::int64_t classes_, float stddev = 3.0F)
      : rows{rows_}, classes{classes_}, logits{random_floats(rows * classes, 1, stddev)} {
    std::mt19937 generator{2};
    std::uniform_int_distribution<std::int64_t> uniform{0, classes - 1};
    for (std::int64_t r = 0; r < rows; ++r) {
      targets.push_back(static_cast<std::int32_t>(uniform(generator)));
    }
  }
  void run_reference(const float* dynamic_scale = nullptr) {
    reference::cross_entropy({logits.data(), targets.data(), &loss, rows, classes, gradient_scale,
                              loss_scale, dynamic_scale, stride},
                             Stream{});
  }
};

struct OnDevice {
  DeviceValues logits;
  DeviceArray<std::int32_t> targets;
  DeviceArray<double> loss;
  Problem problem;

  OnDevice(DeviceBench& bench, DType dtype, const Problem& from, std::int64_t offset = 0)
      : logits{bench, from.logits, dtype, offset},
        targets{bench, from.targets},
        loss{bench, std::vector<double>{from.loss}},
        problem{from} {}
  CrossEntropy args() {
    return {.logits = logits,
            .targets = targets.data(),
            .loss = loss.data(),
            .rows = problem.rows,
            .classes = problem.classes,
            .gradient_scale = problem.gradient_scale,
            .loss_scale = problem.loss_scale,
            .stride = problem.stride};
  }
  double read_loss() { return loss.read().front(); }
};

class CrossEntropyKernels : public BackendTest {
 protected:
  /// Error bounds of the sum of the rows' losses, and of gradients of scale 1.
  struct Bounds {
    double loss;
    double gradient;
  };
  /// On CUDA, from the error of a row's sum of exponentials: the additions of one thread, the
  /// exponentials, and the roundings of their arguments, bounded by the largest.
  static Bounds bounds(const Problem& expected, float stddev) {
    // On a CPU rows are added in 8 or 16 parts, of which the random errors stay below those of 16
    // operations.
    if (!on_cuda()) { return {roundings(17, std::max(1.0, expected.loss)), roundings(14)}; }
    const double additions = 16.0 + static_cast<double>(expected.classes) / 512;
    const double sum = (2 * additions + 8 + 8 * static_cast<double>(stddev)) * kRoundoff;
    return {0.5 * static_cast<double>(expected.rows) * sum, 2 * sum + kRoundoff};
  }
  void run(OnDevice& on_device) { table().cross_entropy(on_device.args(), stream()); }
};
INSTANTIATE_TEST_SUITE_P(Backends, CrossEntropyKernels, backends(), backend_name);

TEST_P(CrossEntropyKernels, AreWithinTheirBounds) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes :
         {1, 2, 7, 8, 9, 31, 32, 33, 64, 255, 256, 257, 1023, 1025, 1500, 5003, 50'257}) {
      for (const float stddev : {0.1F, 3.0F, 50.0F}) {
        SCOPED_TRACE(testing::Message()
                     << classes << " classes, deviation " << stddev << ", " << to_string(dtype));
        Problem expected{classes > 10'000 ? 2 : 9, classes, stddev};
        expected.logits = rounded(dtype, expected.logits);
        OnDevice actual{bench(), dtype, expected, 1};
        expected.run_reference();
        run(actual);
        const Bounds most = bounds(expected, stddev);
        EXPECT_NEAR(actual.read_loss(), expected.loss, most.loss);
        expect_within(actual.logits.floats(), expected.logits, dtype,
                      [&](std::size_t) { return 0.125 * most.gradient; });
      }
    }
  }
}

// Each row has its own target, even if rows pass through the workspace in pieces. A CPU adds the
// losses in the rows' order.
TEST_P(CrossEntropyKernels, ManyRowsGiveTheBitsOfEachAlone) {
  const double slack = on_cuda() ? 1e-12 : 0.0;  // bound: losses are added in fp64
  for (const DType dtype : kValueDTypes) {
    for (const auto& [rows, classes] : {std::pair{150, 67}, {1200, 13}}) {
      if (rows > 150 && (on_cuda() || dtype != DType::fp32)) { continue; }
      const Problem problem{rows, classes};
      OnDevice together{bench(), dtype, problem}, apart{bench(), dtype, problem};
      DeviceArray<double> losses{bench(), std::vector<double>(static_cast<std::size_t>(rows))};
      for (std::int64_t r = 0; r < rows; ++r) {
        table().cross_entropy({apart.logits.values().at(r * classes), apart.targets.data() + r,
                               losses.data() + r, 1, classes, problem.gradient_scale, 1.0},
                              stream());
      }
      double sum = 0.0;
      for (const double loss : losses.read()) { sum += loss; }
      run(together);
      EXPECT_NEAR(together.read_loss(), 0.25 + 0.5 * sum, slack);
      EXPECT_EQ(together.logits.read(), apart.logits.read());

      OnDevice pieces{bench(), dtype, problem};
      {
        const SmallWorkspace small{bench(), 256};  // 32 rows
        run(pieces);
      }
      EXPECT_NEAR(pieces.read_loss(), 0.25 + 0.5 * sum, slack);
      EXPECT_EQ(pieces.logits.read(), apart.logits.read());
    }
  }
}

TEST_P(CrossEntropyKernels, GapsBetweenRowsAreNeitherReadNorWritten) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes : {3, 101, 5003}) {
      Problem problem{40, classes};
      problem.logits = rounded(dtype, problem.logits);
      OnDevice dense{bench(), dtype, problem};
      run(dense);
      problem.stride = (classes + 63) / 64 * 64;
      problem.logits = with_gaps(problem.logits, classes, problem.stride);
      OnDevice spread{bench(), dtype, problem};
      run(spread);
      EXPECT_EQ(spread.loss.read(), dense.loss.read());
      const Floats gradient = dense.logits.floats();
      EXPECT_TRUE(same_bits(spread.logits.floats(), with_gaps(gradient, classes, problem.stride)));
      OnDevice pieces{bench(), dtype, problem};
      {
        const SmallWorkspace small{bench(), 256};  // 32 rows
        run(pieces);
      }
      EXPECT_EQ(pieces.logits.read(), spread.logits.read());
      problem.run_reference();
      const Bounds most = bounds(problem, 3.0F);
      EXPECT_NEAR(spread.read_loss(), problem.loss, most.loss);
      expect_within(gradient, without_gaps(problem.logits, classes, problem.stride), dtype,
                    [&](std::size_t) { return 0.125 * most.gradient; });
    }
  }
}

TEST_P(CrossEntropyKernels, TheGradientIsTheSlopeOfTheLoss) {
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
  OnDevice actual{bench(), DType::fp32, problem};
  run(actual);
  const Floats gradient = actual.logits.floats();
  for (std::size_t c = 0; c < before.size(); ++c) {
    constexpr double h = 1e-5;  // h^2 and 2^-53 / h are below a rounding
    EXPECT_NEAR(gradient[c], (loss(c, h) - loss(c, -h)) / (2 * h),
                bounds(problem, 3.0F).gradient + roundings(2))
        << c;
  }
}

TEST_P(CrossEntropyKernels, LogitsOfAnySizeAreSafe) {
  Problem problem{3, 4};
  problem.logits = {3e38F,      -3e38F, 0.0F,   1.0F,         // certain: class 0
                    -3e38F,     -3e38F, -3e38F, -3e38F,       // undecided, far below
                    -kInfinity, 2.0F,   2.0F,   -kInfinity};  // two classes are impossible
  problem.targets = {0, 3, 1};
  problem.gradient_scale = 1.0F;
  problem.loss_scale = 1.0;
  problem.loss = 0.0;
  OnDevice actual{bench(), DType::fp32, problem};
  run(actual);
  EXPECT_NEAR(actual.read_loss(), std::log(4.0) + std::log(2.0), roundings(8, std::log(8.0)));
  EXPECT_EQ(actual.logits.floats(),
            (Floats{0, 0, 0, 0, 0.25F, 0.25F, 0.25F, -0.75F, 0, -0.5F, 0.5F, 0}));
}

// All that a thread reads at first is minus infinity, or all that it reads later.
TEST_P(CrossEntropyKernels, MaskedClassesTakeNoPartInTheSum) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes : {40, 600, 5003}) {
      for (const bool first : {false, true}) {
        Problem expected{2, classes};
        expected.logits = rounded(dtype, expected.logits);
        for (std::int64_t i = 0; i < 2 * classes; ++i) {
          const bool masked = (i % classes < classes / 2) == first;
          if (masked) { expected.logits[static_cast<std::size_t>(i)] = -kInfinity; }
        }
        const auto target = static_cast<std::int32_t>(first ? classes - 1 : 0);
        expected.targets = {target, target};
        OnDevice actual{bench(), dtype, expected};
        expected.run_reference();
        run(actual);
        const Bounds most = bounds(expected, 3.0F);
        EXPECT_NEAR(actual.read_loss(), expected.loss, most.loss) << classes;
        expect_within(actual.logits.floats(), expected.logits, dtype,
                      [&](std::size_t) { return 0.125 * most.gradient; });
      }
    }
  }
}

TEST_P(CrossEntropyKernels, ALogitThatIsNotFiniteShowsInTheLossAndItsRowAlone) {
  for (const std::size_t classes : {9U, 100U}) {
    for (const float value : {kNan, kInfinity}) {
      for (const std::size_t at : {std::size_t{0}, classes / 2, classes - 1}) {
        Problem problem{2, static_cast<std::int64_t>(classes)};
        problem.logits[at] = value;
        OnDevice actual{bench(), DType::fp32, problem};
        run(actual);
        EXPECT_TRUE(std::isnan(actual.read_loss())) << at;
        const Floats gradient = actual.logits.floats();
        for (std::size_t c = 0; c < classes; ++c) { EXPECT_TRUE(std::isnan(gradient[c])) << c; }
        for (std::size_t c = classes; c < 2 * classes; ++c) {
          EXPECT_TRUE(std::isfinite(gradient[c])) << c;
        }
      }
    }
  }
  Problem nothing{1, 33};  // no class is possible
  std::fill(nothing.logits.begin(), nothing.logits.end(), -kInfinity);
  OnDevice actual{bench(), DType::fp32, nothing};
  run(actual);
  EXPECT_TRUE(std::isnan(actual.read_loss()));
  for (const float value : actual.logits.floats()) { EXPECT_TRUE(std::isnan(value)); }
}

TEST_P(CrossEntropyKernels, ScaleZeroLeavesTheLogitsAndGivesTheSameLoss) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes : {9, 1024, 2500}) {
      Problem problem{5, classes};
      OnDevice trained{bench(), dtype, problem};
      problem.gradient_scale = 0.0F;
      OnDevice watched{bench(), dtype, problem};
      run(trained);
      run(watched);
      EXPECT_EQ(watched.loss.read(), trained.loss.read()) << classes;
      EXPECT_EQ(watched.logits.read(), encoded(problem.logits, dtype)) << classes;
      const Floats before = problem.logits;
      problem.run_reference();
      EXPECT_TRUE(same_bits(problem.logits, before)) << classes;
    }
  }
}

TEST_P(CrossEntropyKernels, AScaleInMemoryMultipliesTheGradientAndNotTheLoss) {
  for (const float scale : {1.0F, 65'536.0F, 0.25F}) {
    Problem problem{9, 257};
    OnDevice plain{bench(), DType::fp32, problem}, scaled{bench(), DType::fp32, problem};
    run(plain);
    DeviceArray<float> in_memory{bench(), Floats{scale}};
    CrossEntropy args = scaled.args();
    args.dynamic_scale = in_memory.data();
    table().cross_entropy(args, stream());
    EXPECT_EQ(scaled.loss.read(), plain.loss.read());
    Floats expected = plain.logits.floats();
    for (float& value : expected) { value *= scale; }
    EXPECT_TRUE(same_bits(scaled.logits.floats(), expected)) << "a power of two";

    problem.run_reference(&scale);
    const Bounds most = bounds(problem, 3.0F);
    EXPECT_NEAR(problem.loss, plain.read_loss(), most.loss);
    EXPECT_LE(largest_difference(expected, problem.logits),
              0.125 * (most.gradient + roundings(4)) * static_cast<double>(scale));
  }
}

// Whatever the logits of an ignored row are, all else is as without the row.
TEST_P(CrossEntropyKernels, IgnoredRowsAddNothing) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t classes : {9, 257, 5003}) {
      const std::int64_t rows = 70;
      Problem problem{rows, classes}, kept{0, classes};
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto row = problem.logits.begin() + r * classes;
        if (r % 3 == 1) {
          problem.targets[static_cast<std::size_t>(r)] = kIgnoredTarget;
          row[r % classes] = kNan;
          continue;
        }
        kept.logits.insert(kept.logits.end(), row, row + classes);
        kept.targets.push_back(problem.targets[static_cast<std::size_t>(r)]);
        ++kept.rows;
      }
      OnDevice expected{bench(), dtype, kept};
      run(expected);
      const auto check = [&](OnDevice& actual) {
        DeviceArray<double> counted{bench(), std::vector<double>{1000.0}};
        CrossEntropy args = actual.args();
        args.counted = counted.data();
        table().cross_entropy(args, stream());
        EXPECT_EQ(counted.read().front(), 1000.0 + static_cast<double>(kept.rows));
        // bound: losses are added in fp64, on CUDA in another order
        EXPECT_NEAR(actual.read_loss(), expected.read_loss(), on_cuda() ? 1e-12 : 0.0);
      };
      OnDevice whole{bench(), dtype, problem}, pieces{bench(), dtype, problem};
      check(whole);
      {
        const SmallWorkspace small{bench(), 256};  // 32 rows
        check(pieces);
      }
      EXPECT_EQ(pieces.logits.read(), whole.logits.read());
      Floats of_kept;
      const Floats gradient = whole.logits.floats();
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto row = gradient.begin() + r * classes;
        if (r % 3 == 1) {
          EXPECT_EQ(Floats(row, row + classes), filled(classes, 0.0F)) << r;
        } else {
          of_kept.insert(of_kept.end(), row, row + classes);
        }
      }
      EXPECT_TRUE(same_bits(of_kept, expected.logits.floats()));

      problem.gradient_scale = 0.0F;
      OnDevice watched{bench(), dtype, problem};
      check(watched);
      EXPECT_EQ(watched.logits.read(), encoded(problem.logits, dtype));
    }
  }
}

TEST(CrossEntropyReference, IgnoredRowsAddNothing) {
  Floats logits{0.0F, 1.0F, 5.0F, kNan, 2.0F, 2.0F};
  const std::vector<std::int32_t> targets{0, kIgnoredTarget, 1};
  Floats kept{0.0F, 1.0F, 2.0F, 2.0F};
  const std::vector<std::int32_t> of_kept{0, 1};
  double loss = 0.0, expected = 0.0, counted = 4.0;
  reference::cross_entropy({.logits = logits.data(),
                            .targets = targets.data(),
                            .loss = &loss,
                            .rows = 3,
                            .classes = 2,
                            .gradient_scale = 1.0F,
                            .loss_scale = 1.0,
                            .counted = &counted},
                           Stream{});
  reference::cross_entropy({kept.data(), of_kept.data(), &expected, 2, 2, 1.0F, 1.0}, Stream{});
  EXPECT_EQ(loss, expected);
  EXPECT_EQ(counted, 6.0);
  EXPECT_EQ(logits, (Floats{kept[0], kept[1], 0.0F, 0.0F, kept[2], kept[3]}));
}

TEST_P(CrossEntropyKernels, BitsDoNotDependOnTheAddress) {
  for (const DType dtype : kValueDTypes) {
    const Problem problem{5, 1333};
    OnDevice expected{bench(), dtype, problem};
    run(expected);
    for (std::int64_t offset = 1; offset < 17; ++offset) {
      OnDevice actual{bench(), dtype, problem, offset};
      run(actual);
      EXPECT_EQ(actual.loss.read(), expected.loss.read()) << offset;
      EXPECT_EQ(actual.logits.read(), expected.logits.read()) << offset;
    }
  }
}

class CrossEntropyOnCuda : public CrossEntropyKernels {};
INSTANTIATE_TEST_SUITE_P(Backends, CrossEntropyOnCuda, cuda_alone(), backend_name);

// Rows that fit the 48 KiB that a block has unasked only without its sums' 384 bytes; the longest
// rows that a block of an H100 keeps in shared memory, and the shortest that it reads twice.
TEST_P(CrossEntropyOnCuda, RowsAtTheLimitOfSharedMemoryAreWithinTheirBounds) {
  for (const DType dtype : kValueDTypes) {
    const bool wide = dtype == DType::fp32;
    for (const std::int64_t classes :
         {wide ? 12'250 : 24'500, wide ? 58'013 : 116'025, wide ? 58'014 : 116'026}) {
      Problem expected{2, classes};
      expected.logits = rounded(dtype, expected.logits);
      OnDevice actual{bench(), dtype, expected, 1};
      expected.run_reference();
      const auto requests = [] {
        return Emulation::there() ? Emulation{}.calls("cudaFuncSetAttribute") : 0;
      };
      const std::uint64_t before = requests();
      run(actual);
      const bool kept = classes != (wide ? 58'014 : 116'026);
      if (Emulation::there()) { EXPECT_EQ(requests() - before, kept ? 2U : 0U); }
      const Bounds most = bounds(expected, 3.0F);
      EXPECT_NEAR(actual.read_loss(), expected.loss, most.loss);
      expect_within(actual.logits.floats(), expected.logits, dtype,
                    [&](std::size_t) { return 0.125 * most.gradient; });
    }
  }
}

TEST_P(CrossEntropyOnCuda, RowsThatAreReadTwiceHaveTheSameBits) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t offset : {0, 3}) {
      const Problem problem{2, dtype == DType::fp32 ? 30'001 : 60'001};
      const auto result = [&](int capability, std::uint64_t kept) {
        emulation.set_capability(capability);
        const std::uint64_t before = emulation.calls("cudaFuncSetAttribute");
        OnDevice on_device{bench(), dtype, problem, offset};
        run(on_device);
        EXPECT_EQ(emulation.calls("cudaFuncSetAttribute") - before, kept) << capability;
        return std::pair{on_device.logits.read(), on_device.loss.read()};
      };
      EXPECT_EQ(result(90, 2), result(86, 0));  // 227 KiB and 99 KiB
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::cross_entropy_test
