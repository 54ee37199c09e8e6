#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"

#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/values.hpp"
#include "tessera/base/ignored_target.hpp"

// Classes split into parts, as on ranks along `tensor`.
namespace tessera::kernels::vocab_cross_entropy_test {
namespace {

TEST(VocabCrossEntropyReference, ByHand) {
  const Floats logits{0.0F, std::log(3.0F), 5.0F, 5.0F};
  const std::vector<std::int32_t> targets{8, 7};
  Floats statistics(12, kNan);
  reference::vocab_statistics({logits.data(), targets.data(), statistics.data(), 2, 2, 7},
                              Stream{});
  EXPECT_FLOAT_EQ(statistics[0], std::log(3.0F));
  EXPECT_FLOAT_EQ(statistics[1], 1.0F + 1.0F / 3.0F);
  EXPECT_FLOAT_EQ(statistics[2], std::log(3.0F));
  EXPECT_THAT((Floats{statistics.begin() + 3, statistics.begin() + 6}),
              testing::ElementsAre(5.0F, 2.0F, 5.0F));
  // The other part has one more class, with logits 0 and 5, and no target.
  const Floats other{0.0F, 1.0F, 0.0F, 5.0F, 1.0F, 0.0F};
  std::copy(other.begin(), other.end(), statistics.begin() + 6);
  Floats gradient = logits;
  double loss = 1.0;
  reference::vocab_cross_entropy(
      {gradient.data(), targets.data(), statistics.data(), 2, &loss, 2, 2, 7, 4.0F, 10.0},
      Stream{});
  EXPECT_NEAR(loss, 1.0 + 10 * (std::log(5.0 / 3.0) + std::log(3.0)), roundings(8, 20.0));
  const double most = roundings(8, 4.0);  // exp, sums, quotient, scale
  EXPECT_NEAR(gradient[0], 4 * 0.2, most);
  EXPECT_NEAR(gradient[1], 4 * (0.6 - 1), most);
  EXPECT_NEAR(gradient[2], 4 * (1.0 / 3 - 1), most);
  EXPECT_NEAR(gradient[3], 4.0 / 3, most);
}

/// Part p has the classes [cuts[p], cuts[p + 1]). Its rows of logits are 5 elements longer.
struct Parts {
  std::int64_t rows;
  std::vector<std::int64_t> cuts;
  DType dtype;
  Floats logits;
  std::vector<std::int32_t> targets;
  float gradient_scale = 0.125F;

  Parts(std::int64_t rows_, std::vector<std::int64_t> cuts_, DType dtype_, float stddev)
      : rows{rows_},
        cuts{std::move(cuts_)},
        dtype{dtype_},
        logits{rounded(dtype_, random_floats(rows * cuts.back(), 1, stddev))} {
    std::mt19937 generator{2};
    std::uniform_int_distribution<std::int64_t> uniform{0, cuts.back() - 1};
    for (std::int64_t r = 0; r < rows; ++r) {
      targets.push_back(static_cast<std::int32_t>(uniform(generator)));
    }
  }
  [[nodiscard]] std::int64_t count() const { return std::ssize(cuts) - 1; }
  [[nodiscard]] std::int64_t classes(std::int64_t part) const {
    return cuts[static_cast<std::size_t>(part + 1)] - cuts[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] Floats of_part(std::int64_t part) const {
    Floats all;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = logits.begin() + r * cuts.back() + cuts[static_cast<std::size_t>(part)];
      all.insert(all.end(), row, row + classes(part));
    }
    return classes(part) == 0 ? Floats{} : with_gaps(all, classes(part), classes(part) + 5);
  }
};

struct Result {
  std::vector<double> losses;   ///< by part
  std::vector<double> counted;  ///< by part
  Floats gradients;             ///< [rows, all classes]
};

class VocabCrossEntropyKernels : public BackendTest {
 protected:
  Result run(const Parts& parts, float dynamic_scale = 1.0F) {
    DeviceArray<std::int32_t> targets{bench(), parts.targets};
    DeviceArray<float> scale{bench(), Floats{dynamic_scale}};
    const std::int64_t elems = parts.rows * kRowStatistics;
    DeviceArray<float> statistics{bench(), parts.count() * elems};
    std::vector<std::unique_ptr<DeviceValues>> logits;
    for (std::int64_t p = 0; p < parts.count(); ++p) {
      logits.push_back(std::make_unique<DeviceValues>(bench(), parts.of_part(p), parts.dtype, 1));
      table().vocab_statistics(
          {*logits.back(), targets.data(), statistics.data() + p * elems, parts.rows,
           parts.classes(p), parts.cuts[static_cast<std::size_t>(p)], parts.classes(p) + 5},
          stream());
    }
    Result result;
    result.gradients = filled(std::ssize(parts.logits), kNan);
    for (std::int64_t p = 0; p < parts.count(); ++p) {
      const std::int64_t classes = parts.classes(p);
      const std::int64_t first = parts.cuts[static_cast<std::size_t>(p)];
      DeviceArray<double> loss{bench(), std::vector<double>{0.25}};
      DeviceArray<double> counted{bench(), std::vector<double>{1.0}};
      DeviceValues& mine = *logits[static_cast<std::size_t>(p)];
      table().vocab_cross_entropy(
          {mine, targets.data(), statistics.data(), parts.count(), loss.data(), parts.rows, classes,
           first, parts.gradient_scale, 0.5, scale.data(), classes + 5, counted.data()},
          stream());
      result.losses.push_back(loss.read().front());
      result.counted.push_back(counted.read().front());
      if (classes == 0) { continue; }
      const Floats all = mine.floats();
      for (std::int64_t r = 0; r < parts.rows; ++r) {
        const auto row = all.begin() + r * (classes + 5);
        std::copy(row, row + classes, result.gradients.begin() + r * parts.cuts.back() + first);
        EXPECT_TRUE(std::all_of(row + classes, row + classes + 5,
                                [](float gap) { return std::isnan(gap); }));
      }
    }
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, VocabCrossEntropyKernels, backends(), backend_name);

// Rounding changes a row's sum of exponentials by at most 2^-24 in each part, in addition to the
// bound of one part's kernel (its tests).
TEST_P(VocabCrossEntropyKernels, PartsGiveWhatOneKernelGives) {
  const std::vector<std::vector<std::int64_t>> cuts{
      {0, 257}, {0, 64, 257}, {0, 0, 1, 1, 257}, {0, 128, 192, 257, 257}, {0, 2500, 5003}};
  for (const DType dtype : kValueDTypes) {
    for (const auto& cut : cuts) {
      for (const float stddev : {0.1F, 50.0F}) {
        SCOPED_TRACE(testing::Message() << cut.size() - 1 << " parts of " << cut.back() << ", "
                                        << stddev << ", " << to_string(dtype));
        const Parts parts{9, cut, dtype, stddev};
        Floats expected = parts.logits;
        double loss = 0.25;
        reference::cross_entropy(
            {expected.data(), parts.targets.data(), &loss, 9, cut.back(), 0.125F, 0.5}, Stream{});
        const Result actual = run(parts);
        const double additions = 16.0 + static_cast<double>(cut.back()) / 512;
        const double sum = (2 * additions + 10 + 8 * static_cast<double>(stddev)) * kRoundoff;
        for (const double one : actual.losses) {
          EXPECT_EQ(one, actual.losses.front()) << "all parts have the same loss";
        }
        EXPECT_NEAR(actual.losses.front(), loss, 4.5 * sum + roundings(17, loss));
        expect_within(actual.gradients, expected, dtype,
                      [&](std::size_t) { return 0.125 * (2 * sum + kRoundoff); });
      }
    }
  }
}

// The slope of both parts' loss, by central differences of a logit.
TEST_P(VocabCrossEntropyKernels, TheGradientIsTheSlopeOfTheLoss) {
  Parts parts{2, {0, 3, 7}, DType::fp32, 1.0F};
  parts.gradient_scale = 0.5F;  // matches the losses
  const Floats gradients = run(parts).gradients;
  for (std::size_t i = 0; i < parts.logits.size(); ++i) {
    constexpr float h = 0x1p-5F;
    Parts above = parts, below = parts;
    above.logits[i] += h;
    below.logits[i] -= h;
    const double step = static_cast<double>(above.logits[i]) - static_cast<double>(below.logits[i]);
    const double slope = (run(above).losses[0] - run(below).losses[0]) / step;
    EXPECT_NEAR(gradients[i], slope, 1e-4)
        << i;  // bound: h^2 / 6 times a third derivative below 1/4
  }
}

TEST_P(VocabCrossEntropyKernels, RowsThatPassThroughTheWorkspaceInPiecesHaveTheSameBits) {
  const Parts parts{75, {0, 30, 67}, DType::fp32, 3.0F};
  const Result whole = run(parts);
  const SmallWorkspace small{bench(), 256};  // 32 rows
  const Result pieces = run(parts);
  EXPECT_TRUE(same_bits(pieces.gradients, whole.gradients));
  // bound: losses are added in fp64
  for (std::size_t p = 0; p < 2; ++p) { EXPECT_NEAR(pieces.losses[p], whole.losses[p], 1e-12); }
}

TEST_P(VocabCrossEntropyKernels, IgnoredRowsAddNothing) {
  for (const DType dtype : kValueDTypes) {
    Parts parts{40, {0, 30, 67}, dtype, 3.0F};
    Parts kept{0, {0, 30, 67}, dtype, 3.0F};
    for (std::int64_t r = 0; r < parts.rows; ++r) {
      const auto row = parts.logits.begin() + r * 67;
      if (r % 3 == 1) {
        parts.targets[static_cast<std::size_t>(r)] = kIgnoredTarget;
        row[r] = kNan;
        continue;
      }
      kept.logits.insert(kept.logits.end(), row, row + 67);
      kept.targets.push_back(parts.targets[static_cast<std::size_t>(r)]);
      ++kept.rows;
    }
    const Result expected = run(kept);
    const Result actual = run(parts);
    for (std::size_t p = 0; p < 2; ++p) {
      // bound: losses are added in fp64, on CUDA in another order
      EXPECT_NEAR(actual.losses[p], expected.losses[p], on_cuda() ? 1e-12 : 0.0);
      EXPECT_EQ(actual.counted[p], 1.0 + static_cast<double>(kept.rows));
    }
    Floats of_kept;
    for (std::int64_t r = 0; r < parts.rows; ++r) {
      const auto row = actual.gradients.begin() + r * 67;
      if (r % 3 == 1) {
        EXPECT_EQ(Floats(row, row + 67), filled(67, 0.0F)) << r;
      } else {
        of_kept.insert(of_kept.end(), row, row + 67);
      }
    }
    EXPECT_TRUE(same_bits(of_kept, expected.gradients));
  }
}

TEST_P(VocabCrossEntropyKernels, ScalesApplyToTheGradientOnly) {
  Parts parts{5, {0, 30, 67}, DType::fp32, 3.0F};
  const Result plain = run(parts);
  const Result scaled = run(parts, 1024.0F);
  EXPECT_EQ(scaled.losses, plain.losses);
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_EQ(scaled.gradients[i], 1024.0F * plain.gradients[i]) << "a power of two";
  }
  parts.gradient_scale = 0.0F;
  const Result watched = run(parts);
  EXPECT_EQ(watched.losses, plain.losses);
  EXPECT_TRUE(same_bits(watched.gradients, parts.logits));
}

TEST_P(VocabCrossEntropyKernels, ANanInOnePartReachesAllLossesAndGradients) {
  Parts parts{1, {0, 3, 7}, DType::fp32, 1.0F};
  parts.logits[5] = kNan;
  const Result result = run(parts);
  EXPECT_TRUE(std::isnan(result.losses[0]) && std::isnan(result.losses[1]));
  for (const float gradient : result.gradients) { EXPECT_TRUE(std::isnan(gradient)); }
  parts.logits[5] = -kInfinity;  // masked
  EXPECT_TRUE(std::isfinite(run(parts).losses[0]));
  for (const std::size_t i : {0U, 1U, 2U}) { parts.logits[i] = -kInfinity; }
  parts.targets[0] = 4;
  EXPECT_TRUE(std::isfinite(run(parts).losses[0])) << "a part may be masked altogether";
}

}  // namespace
}  // namespace tessera::kernels::vocab_cross_entropy_test
