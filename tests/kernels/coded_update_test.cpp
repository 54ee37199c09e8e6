// Optimizers whose moments have 8 bits.
#include <cstring>
#include <functional>

#include "kernels/support.hpp"
#include "kernels/update/coded_moments_reference.hpp"
#include "kernels/update/update_run.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels {
namespace {

using Step = std::function<void(const UpdateRun&, const StepScalars*, Stream)>;

struct Rule {
  const char* name;
  int moments;
  Step reference;
  Step cpu;
};

template <class Hyper>
Rule rule(const char* name, int moments, Hyper hyper, auto* reference, auto* cpu) {
  const auto step = [hyper](auto* kernel) {
    return [=](const UpdateRun& run, const StepScalars* scalars, Stream stream) {
      kernel(run, hyper, scalars, stream);
    };
  };
  return {name, moments, step(reference), step(cpu)};
}

const Rule kRules[] = {
    rule("adamw", 2, AdamW{}, &reference::adamw, &cpu::adamw),
    rule("adam", 2, Adam{.weight_decay = 0.1F}, &reference::adam, &cpu::adam),
    rule("lion", 1, Lion{.lr = 0.01F, .weight_decay = 0.1F}, &reference::lion, &cpu::lion),
    rule("momentum", 1, SGD{.weight_decay = 0.1F}, &reference::sgd, &cpu::sgd),
};

template <class T>
std::vector<T> rounded(const Floats& values) {
  std::vector<T> result;
  for (const float value : values) { result.push_back(T::from_float(value)); }
  return result;
}

/// A whole parameter, number 5, from its element 512 on.
struct State {
  explicit State(std::int64_t elems, int moments_ = 2)
      : moments{moments_},
        master{random_floats(elems, 1)},
        gradient{random_floats(elems, 2)},
        narrow_gradient{rounded<bfloat16>(gradient)},
        parameter(master.size()),
        first(master.size()),
        second(master.size()),
        first_units(static_cast<std::size_t>(ceil_div(elems, kMomentBlock))),
        second_units{first_units} {}

  UpdateRun run() {
    UpdateRun all{.master = master.data(),
                  .gradient = gradient.data(),
                  .first_codes = {first.data(), first_units.data()},
                  .elems = std::ssize(master),
                  .seed = 42,
                  .parameter_id = 5,
                  .first_in_parameter = 512};
    if (moments > 1) { all.second_codes = {second.data(), second_units.data()}; }
    return all;
  }
  UpdateRun run_in_bf16(Rounding rounding) {
    UpdateRun all = run();
    all.parameter = parameter.data();
    all.gradient = narrow_gradient.data();
    all.rounding = rounding;
    return all;
  }
  friend bool operator==(const State& a, const State& b) {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() &&
             (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0);
    };
    return same(a.master, b.master) && same(a.parameter, b.parameter) && same(a.first, b.first) &&
           same(a.second, b.second) && same(a.first_units, b.first_units) &&
           same(a.second_units, b.second_units);
  }

  int moments;
  Floats master, gradient;
  std::vector<bfloat16> narrow_gradient, parameter;
  std::vector<std::uint8_t> first, second;
  Floats first_units, second_units;
};

StepScalars at_update(std::int64_t t) {
  StepScalars scalars;
  scalars.updates = t;
  scalars.gradient_factor = 0.37F;
  return scalars;
}

using CodedUpdateTest = KernelTest;

TEST_F(CodedUpdateTest, EveryRuleMatchesItsReferenceToTheBit) {
  for (const Rule& rule : kRules) {
    for (const std::int64_t elems : {0, 1, 255, 256, 257, 1500}) {
      SCOPED_TRACE(std::string{rule.name} + " " + std::to_string(elems));
      State expected{elems, rule.moments};
      State actual = expected;
      for (std::int64_t t = 1; t <= 4; ++t) {
        const StepScalars scalars = at_update(t);
        const Rounding rounding = t % 2 == 0 ? Rounding::nearest : Rounding::stochastic;
        rule.reference(expected.run(), &scalars, Stream{});
        rule.cpu(actual.run(), &scalars, stream());
        ASSERT_EQ(expected, actual);
        rule.reference(expected.run_in_bf16(rounding), &scalars, Stream{});
        rule.cpu(actual.run_in_bf16(rounding), &scalars, stream());
        ASSERT_EQ(expected, actual);
      }
    }
  }
}

// The property ZeRO stands on, for every cut between blocks.
TEST_F(CodedUpdateTest, NoCutBetweenBlocksAndNoNumberOfThreadsChangesABit) {
  const std::unique_ptr<Device> three = make_cpu_device({.threads = 3});
  const OwnedStream threads = three->make_compute_stream();
  const StepScalars scalars = at_update(3);
  for (const Rule& rule : kRules) {
    State whole{30'001, rule.moments};
    State sharded = whole;
    State shared = whole;
    rule.cpu(whole.run(), &scalars, stream());
    rule.cpu(shared.run(), &scalars, threads.get());
    EXPECT_EQ(whole, shared) << rule.name;
    std::int64_t from = 0;
    for (const std::int64_t to : {256, 1024, 1280, 25'600, 30'001}) {
      rule.cpu(sharded.run().slice(from, to - from), &scalars, stream());
      from = to;
    }
    EXPECT_EQ(whole, sharded) << rule.name;
  }
}

TEST_F(CodedUpdateTest, ARefusedStepLeavesEverythingUntouched) {
  StepScalars scalars = at_update(4);
  scalars.apply = 0;
  for (const Rule& rule : kRules) {
    const State before{600, rule.moments};
    State after = before;
    rule.cpu(after.run(), &scalars, stream());
    rule.reference(after.run(), &scalars, Stream{});
    EXPECT_EQ(before, after) << rule.name;
  }
}

// What the weight does is the first update's: it moves by moments that nothing has rounded.
TEST_F(CodedUpdateTest, TheWeightMovesByMomentsBeforeTheyAreCodes) {
  const StepScalars scalars = at_update(1);
  for (const Rule& rule : kRules) {
    State coded{700, rule.moments};
    State wide = coded;
    Floats first(700), second(700);
    UpdateRun run = wide.run();
    run.first_codes = {};
    run.second_codes = {};
    run.first = first.data();
    if (rule.moments > 1) { run.second = second.data(); }
    rule.cpu(coded.run(), &scalars, stream());
    rule.cpu(run, &scalars, stream());
    EXPECT_EQ(coded.master, wide.master) << rule.name;
  }
}

/// AdamW with moments of 8 bits beside one with moments of fp32, and the same gradients.
struct Pair {
  explicit Pair(std::int64_t elems)
      : coded{elems}, master{coded.master}, first(master.size()), second(first) {}

  void update(std::int64_t t, const AdamW& hyper, Stream stream) {
    StepScalars scalars;
    scalars.updates = t;
    cpu::adamw(coded.run(), hyper, &scalars, stream);
    UpdateRun run = coded.run();
    run.first_codes = {};
    run.second_codes = {};
    run.master = master.data();
    run.first = first.data();
    run.second = second.data();
    cpu::adamw(run, hyper, &scalars, stream);
  }

  State coded;
  Floats master, first, second;
};

double mean_of(const Floats& values, float (*of)(float)) {
  double sum = 0.0;
  for (const float value : values) { sum += of(value); }
  return sum / static_cast<double>(values.size());
}
float magnitude(float x) {
  return std::abs(x);
}
float root(float x) {
  return std::sqrt(x);
}

// Chance is fair: the means follow fp32's. One element strays, by a tenth of itself in a while of
// 1 / (1 - beta2) updates.
TEST_F(CodedUpdateTest, WithoutAGradientMomentsDecayAsThoseOfFp32) {
  for (const float beta2 : {0.95F, 0.999F}) {
    Pair pair{100 * kMomentBlock};
    const AdamW hyper{.lr = 0.0F, .beta2 = beta2};
    pair.update(1, hyper, stream());
    std::fill(pair.coded.gradient.begin(), pair.coded.gradient.end(), 0.0F);
    for (std::int64_t t = 2; t <= 1001; ++t) {
      pair.update(t, hyper, stream());
      if (t != 101 && t != 401 && t != 1001) { continue; }
      const reference::WideMoments kept = reference::read_codes(pair.coded.run());
      EXPECT_NEAR(mean_of(kept.second, root) / mean_of(pair.second, root), 1.0, 0.01) << t;
      if (t > 401) { continue; }  // then the first has left the range
      EXPECT_NEAR(mean_of(kept.first, magnitude) / mean_of(pair.first, magnitude), 1.0, 0.02) << t;
    }
  }
}

TEST_F(CodedUpdateTest, WithAConstantGradientMomentsComeToIt) {
  for (const float beta2 : {0.95F, 0.999F}) {
    Pair pair{4 * kMomentBlock};
    const AdamW hyper{.lr = 0.0F, .beta2 = beta2};
    for (std::int64_t t = 1; t <= 3000; ++t) { pair.update(t, hyper, stream()); }
    const reference::WideMoments kept = reference::read_codes(pair.coded.run());
    EXPECT_NEAR(mean_of(kept.first, magnitude) / mean_of(pair.first, magnitude), 1.0, 0.01);
    EXPECT_NEAR(mean_of(kept.second, root) / mean_of(pair.second, root), 1.0, 0.01) << beta2;
    for (std::size_t i = 0; i < kept.second.size(); ++i) {
      ASSERT_NEAR(std::sqrt(kept.second[i] / pair.second[i]), 1.0F, 0.6F);
    }
  }
}

// What docs/optimizers.md says of it: gradients of mean 0.1 and deviation 1, whose scale spreads
// over four decades in a block, and steps in rates, which are 0.25 in the mean square's root.
TEST_F(CodedUpdateTest, UnderNoiseTheStepIsThatOfFp32AndATenthOfItAstray) {
  for (const auto& [beta2, bound] : {std::pair{0.95F, 0.03}, {0.999F, 0.045}}) {
    Pair pair{4 * kMomentBlock};
    std::mt19937 generator{5};
    std::normal_distribution<float> normal{0.1F, 1.0F};
    const AdamW hyper{.lr = 1.0F, .beta2 = beta2, .weight_decay = 0.0F};
    double stray = 0.0;
    double moved = 0.0;
    for (std::int64_t t = 1; t <= 1500; ++t) {
      for (std::size_t i = 0; i < pair.master.size(); ++i) {
        const float scale = std::pow(10.0F, -static_cast<float>(i % 97) / 24.0F);
        pair.coded.gradient[i] = scale * normal(generator);
        pair.coded.master[i] = pair.master[i] = 0.0F;
      }
      pair.update(t, hyper, stream());
      for (std::size_t i = 0; t > 750 && i < pair.master.size(); ++i) {
        const double difference = pair.coded.master[i] - pair.master[i];
        stray += difference * difference;
        moved += static_cast<double>(pair.master[i]) * pair.master[i];
      }
    }
    const auto count = static_cast<double>(750 * pair.master.size());
    EXPECT_NEAR(std::sqrt(moved / count), 0.25, 0.03);
    EXPECT_LT(std::sqrt(stray / count), bound) << beta2;
  }
}

// The danger of few bits: v becomes 0 while m does not, and m / (0 + eps) is anything. Here the
// smallest gradients are 1e-12 of their block's largest.
TEST_F(CodedUpdateTest, TheStepStaysBoundedBesideAHugeNeighbour) {
  Pair pair{2 * kMomentBlock};
  const Floats noise = random_floats(2 * kMomentBlock, 9);
  std::mt19937 generator{3};
  std::normal_distribution<float> normal;
  const AdamW hyper{.lr = 1.0F, .weight_decay = 0.0F};
  float furthest = 0.0F;
  for (std::int64_t t = 1; t <= 300; ++t) {
    for (std::size_t i = 0; i < noise.size(); ++i) {
      const float scale = std::pow(10.0F, -static_cast<float>(i % 128) / 10.0F);
      pair.coded.gradient[i] = (i < kMomentBlock ? scale : 0.0F) * normal(generator);
    }
    const Floats before = pair.coded.master;
    StepScalars scalars;
    scalars.updates = t;
    cpu::adamw(pair.coded.run(), hyper, &scalars, stream());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float moved = std::abs(pair.coded.master[i] - before[i]);
      ASSERT_TRUE(std::isfinite(moved));
      furthest = std::max(furthest, moved);
    }
  }
  EXPECT_LT(furthest, 8.0F) << "in rates; 1 is usual";
  for (std::size_t i = kMomentBlock; i < noise.size(); ++i) {  // a block of zeros
    EXPECT_EQ(pair.coded.first[i] & 0x7F, 0);
    EXPECT_EQ(pair.coded.second[i], 0);
  }
}

TEST_F(CodedUpdateTest, SpecialValuesHaveTheReferencesBitsAndStayFinite) {
  const Floats special{0.0F, -0.0F, 1e-45F, -1e-40F, 1e-38F, 1e-20F,
                       1.0F, 3e38F, -3e38F, 1e19F,   -1e20F, 7e-8F};
  for (const Rule& rule : kRules) {
    State expected{2048, rule.moments};
    for (std::size_t i = 0; i < expected.gradient.size(); ++i) {
      expected.gradient[i] = special[(i + i / kMomentBlock) % (1 + i / 171)];
    }
    State actual = expected;
    for (std::int64_t t = 1; t <= 3; ++t) {
      const StepScalars scalars = at_update(t);
      rule.reference(expected.run(), &scalars, Stream{});
      rule.cpu(actual.run(), &scalars, stream());
      ASSERT_EQ(expected, actual) << rule.name;
    }
    const reference::WideMoments kept = reference::read_codes(actual.run());
    EXPECT_THAT(kept.first,
                testing::Each(testing::Truly([](float x) { return std::isfinite(x); })));
    EXPECT_THAT(kept.second,
                testing::Each(testing::Truly([](float x) { return std::isfinite(x); })));
  }
}

}  // namespace
}  // namespace tessera::kernels
