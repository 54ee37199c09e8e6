// Moments of 8 bits on a device: the CPU's bits.
#include <algorithm>
#include <functional>

#include "cuda/values.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels {
namespace {

struct Rule {
  const char* name;
  int moments;
  std::function<void(const Table&, const UpdateRun&, const StepScalars*, Stream)> step;
};

std::vector<Rule> rules() {
  const auto rule = [](const char* name, int moments, auto* Table::*kernel, auto hyper) {
    return Rule{name, moments,
                [=](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
                  (t.*kernel)(r, hyper, s, stream);
                }};
  };
  return {rule("adamw", 2, &Table::adamw, AdamW{}),
          rule("adam", 2, &Table::adam, Adam{.weight_decay = 0.01F}),
          rule("lion", 1, &Table::lion, Lion{.weight_decay = 0.1F}),
          rule("momentum", 1, &Table::sgd, SGD{.weight_decay = 0.01F})};
}

struct Layout {
  std::int64_t elems = 700;
  DType gradient = DType::fp32;
  DType parameter = DType::fp32;  ///< fp32: there is no copy
  Rounding rounding = Rounding::nearest;
  std::int64_t offset = 0;  ///< of weights, gradient and parameter
  int updates = 3;
};

struct Outcome {
  Bytes weight, parameter;
  std::vector<std::uint8_t> first, second;
  Floats first_units, second_units;
};

UpdateRun common(const Layout& layout) {
  return {.elems = layout.elems,
          .rounding = layout.rounding,
          .seed = 0x123456789ABCULL,
          .parameter_id = 6,
          .first_in_parameter = (std::int64_t{1} << 34) + kMomentBlock};
}

StepScalars at_update(int t) {
  StepScalars scalars;
  scalars.updates = t;
  scalars.gradient_factor = 0.37F;
  return scalars;
}

Floats gradient_at(const Layout& layout, int t) {
  Floats gradient = random_floats(layout.elems, static_cast<unsigned>(t));
  for (std::size_t i = 0; i < gradient.size(); i += 7) { gradient[i] *= 1e-7F; }
  return gradient;
}

/// All zero.
struct Moments {
  Moments(CudaBench& bench, std::int64_t elems)
      : first{bench, std::vector<std::uint8_t>(static_cast<std::size_t>(elems))},
        second{bench, first.read()},
        first_units{bench, Floats(static_cast<std::size_t>(ceil_div(elems, kMomentBlock)))},
        second_units{bench, first_units.read()} {}
  void give(UpdateRun& run, int count) {
    run.first_codes = {first.data(), first_units.data()};
    if (count > 1) { run.second_codes = {second.data(), second_units.data()}; }
  }

  DeviceArray<std::uint8_t> first, second;
  DeviceArray<float> first_units, second_units;
};

class CudaCodedUpdateTest : public CudaTest {
 protected:
  Outcome on_host(const Rule& rule, const Layout& layout) {
    const auto units = static_cast<std::size_t>(ceil_div(layout.elems, kMomentBlock));
    const auto elems = static_cast<std::size_t>(layout.elems);
    Floats weight = random_floats(layout.elems, 9);
    Outcome out{.weight = {},
                .parameter = Bytes(elems * size_of(layout.parameter)),
                .first = std::vector<std::uint8_t>(elems),
                .second = std::vector<std::uint8_t>(elems),
                .first_units = Floats(units),
                .second_units = Floats(units)};
    UpdateRun run = common(layout);
    run.master = weight.data();
    if (layout.parameter != DType::fp32) {
      run.parameter = {out.parameter.data(), layout.parameter};
    }
    run.first_codes = {out.first.data(), out.first_units.data()};
    if (rule.moments > 1) { run.second_codes = {out.second.data(), out.second_units.data()}; }
    for (int t = 1; t <= layout.updates; ++t) {
      const Bytes gradient = encoded(gradient_at(layout, t), layout.gradient);
      const StepScalars scalars = at_update(t);
      run.gradient = {gradient.data(), layout.gradient};
      rule.step(twin_.table(), run, &scalars, twin_.stream());
    }
    out.weight = encoded(weight, DType::fp32);
    return out;
  }

  /// Of the same, in pieces that end at `cuts`.
  Outcome on_device(const Rule& rule, const Layout& layout, const std::vector<std::int64_t>& cuts) {
    DeviceValues weight{bench(), random_floats(layout.elems, 9), DType::fp32, layout.offset};
    DeviceValues parameter{bench(), filled(layout.elems, 0.0F), layout.parameter, layout.offset};
    Moments moments{bench(), layout.elems};
    UpdateRun run = common(layout);
    run.master = weight.values().as<float>();
    if (layout.parameter != DType::fp32) { run.parameter = parameter.values(); }
    moments.give(run, rule.moments);
    for (int t = 1; t <= layout.updates; ++t) {
      DeviceValues gradient{bench(), gradient_at(layout, t), layout.gradient, layout.offset};
      DeviceArray<StepScalars> scalars{bench(), std::vector<StepScalars>{at_update(t)}};
      run.gradient = gradient.values();
      std::int64_t from = 0;
      for (const std::int64_t to : cuts) {
        rule.step(table(), run.slice(from, to - from), scalars.data(), stream());
        from = to;
      }
      stream().wait();
    }
    return {weight.read(),         parameter.read(),           moments.first.read(),
            moments.second.read(), moments.first_units.read(), moments.second_units.read()};
  }

  void expect_same(const Rule& rule, const Layout& layout) {
    expect_same(rule, layout, {layout.elems});
  }
  void expect_same(const Rule& rule, const Layout& layout, const std::vector<std::int64_t>& cuts) {
    SCOPED_TRACE(testing::Message()
                 << rule.name << ", " << layout.elems << " elements at " << layout.offset);
    const Outcome expected = on_host(rule, layout);
    const Outcome actual = on_device(rule, layout, cuts);
    EXPECT_EQ(actual.weight, expected.weight);
    EXPECT_EQ(actual.parameter, expected.parameter);
    EXPECT_EQ(actual.first, expected.first);
    EXPECT_EQ(actual.second, expected.second);
    EXPECT_EQ(actual.first_units, expected.first_units);
    EXPECT_EQ(actual.second_units, expected.second_units);
  }

  CpuTwin twin_;
};

TEST_F(CudaCodedUpdateTest, HasTheCpusBitsAtEverySize) {
  for (const Rule& rule : rules()) {
    for (const std::int64_t elems : {0, 1, 255, 256, 257, 1003}) {
      expect_same(rule, {.elems = elems});
    }
  }
}

TEST_F(CudaCodedUpdateTest, HasTheCpusBitsInEveryMixOfDtypes) {
  for (const Rule& rule : rules()) {
    for (const DType gradient : kElementTypes) {
      for (const DType parameter : kElementTypes) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
          expect_same(rule, {.gradient = gradient, .parameter = parameter, .rounding = rounding});
        }
      }
    }
  }
}

TEST_F(CudaCodedUpdateTest, ArraysMayStandAskewOfSixteenBytes) {
  for (const std::int64_t offset : {1, 2, 4}) {
    expect_same(rules().front(), {.parameter = DType::bf16, .offset = offset});
  }
}

TEST_F(CudaCodedUpdateTest, CutsBetweenBlocksChangeNothing) {
  for (const Rule& rule : rules()) {
    expect_same(rule, {.elems = 3000, .parameter = DType::bf16}, {256, 1280, 1536, 3000});
  }
}

// Joined, they are what whole masters become; so are the codes.
TEST_F(CudaCodedUpdateTest, RemaindersOfMastersTrainAsWholeOnes) {
  for (const Rule& rule : rules()) {
    for (const std::int64_t offset : {0, 1}) {
      const Layout layout{.parameter = DType::bf16, .offset = offset, .updates = 1};
      const Outcome whole = on_host(rule, layout);
      const Floats start = random_floats(layout.elems, 9);
      std::vector<std::uint16_t> upper(start.size());
      std::vector<std::uint16_t> lower(start.size());
      std::ranges::transform(start, upper.begin(), parameter_bits);
      std::ranges::transform(start, lower.begin(), remainder_bits);
      DeviceArray<std::uint16_t> parameter{bench(), upper, offset};
      DeviceArray<std::uint16_t> remainder{bench(), lower, offset};
      Moments moments{bench(), layout.elems};
      DeviceValues gradient{bench(), gradient_at(layout, 1), layout.gradient, offset};
      DeviceArray<StepScalars> scalars{bench(), std::vector<StepScalars>{at_update(1)}};
      UpdateRun run = common(layout);
      run.parameter = {parameter.data(), DType::bf16};
      run.remainder = remainder.data();
      run.gradient = gradient.values();
      moments.give(run, rule.moments);
      rule.step(table(), run, scalars.data(), stream());
      upper = parameter.read();
      lower = remainder.read();
      Floats joined(upper.size());
      std::ranges::transform(upper, lower, joined.begin(), join_master);
      EXPECT_EQ(encoded(joined, DType::fp32), whole.weight) << rule.name << " at " << offset;
      EXPECT_EQ(moments.first.read(), whole.first) << rule.name << " at " << offset;
      EXPECT_EQ(moments.second.read(), whole.second) << rule.name << " at " << offset;
    }
  }
}

TEST_F(CudaCodedUpdateTest, ALongRunTakesSeveralBlocksAWarp) {
  expect_same(rules().front(), {.elems = 1'400'003, .gradient = DType::bf16, .updates = 1});
}

TEST_F(CudaCodedUpdateTest, ARefusedStepWritesNothing) {
  StepScalars refused = at_update(1);
  refused.apply = 0;
  DeviceArray<StepScalars> scalars{bench(), std::vector<StepScalars>{refused}};
  const std::vector<std::uint8_t> codes(300, 17);
  const Floats units(2, 0.5F);
  const Floats values = random_floats(300, 1);
  DeviceValues weight{bench(), values, DType::fp32};
  DeviceValues gradient{bench(), values, DType::fp32};
  DeviceArray<std::uint8_t> first{bench(), codes};
  DeviceArray<float> first_units{bench(), units};
  for (const Rule& rule : rules()) {
    UpdateRun run = common({.elems = 300});
    run.master = weight.values().as<float>();
    run.gradient = gradient.values();
    run.first_codes = {first.data(), first_units.data()};
    if (rule.moments > 1) { run.second_codes = run.first_codes; }
    rule.step(table(), run, scalars.data(), stream());
  }
  EXPECT_EQ(weight.floats(), values);
  EXPECT_EQ(first.read(), codes);
  EXPECT_EQ(first_units.read(), units);
}

}  // namespace
}  // namespace tessera::kernels
