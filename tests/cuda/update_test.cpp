// The optimizers' kernels: one pass whose bits are the CPU's, however the run is cut and rounded.
#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda/values.hpp"
#include "kernels/support/master_parts.hpp"

namespace tessera::kernels {
namespace {

/// A rule with its numbers, as both backends run it.
struct Rule {
  const char* name;
  int moments;
  std::function<void(const Table&, const UpdateRun&, const StepScalars*, Stream)> step;
};

std::vector<Rule> rules() {
  return {
      {"adamw", 2,
       [](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
         t.adamw(r, AdamW{}, s, stream);
       }},
      {"adam", 2,
       [](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
         Adam hyper;
         hyper.weight_decay = 0.01F;
         t.adam(r, hyper, s, stream);
       }},
      {"lion", 1,
       [](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
         Lion hyper;
         hyper.weight_decay = 0.1F;
         t.lion(r, hyper, s, stream);
       }},
      {"sgd with momentum", 1,
       [](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
         t.sgd(r, SGD{.lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F}, s, stream);
       }},
      {"sgd", 0,
       [](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
         t.sgd(r, SGD{.lr = 0.1F, .momentum = 0.0F, .weight_decay = 0.01F}, s, stream);
       }},
      {"round_weights", 0,
       [](const Table& t, const UpdateRun& r, const StepScalars* s, Stream stream) {
         t.round_weights(r, s, stream);
       }},
  };
}

struct Layout {
  std::int64_t elems = 0;
  DType gradient = DType::fp32;
  DType parameter = DType::fp32;  ///< fp32: there is no copy
  DType first = DType::fp32;
  DType second = DType::fp32;
  Rounding rounding = Rounding::nearest;
  std::int64_t offset = 0;         ///< of all arrays
  std::int64_t gradient_skew = 0;  ///< of the gradient, besides
  std::int64_t first_in_parameter = 0;
  bool remainder = false;  ///< of the masters, with bf16 parameters
};

std::string text(const Layout& layout) {
  std::string all = std::to_string(layout.elems) + " elements at " + std::to_string(layout.offset);
  for (const DType dtype : {layout.gradient, layout.parameter, layout.first, layout.second}) {
    all += std::string{" "} + std::string{to_string(dtype)};
  }
  if (layout.remainder) { all += " remainders"; }
  return all + " " + std::string{to_string(layout.rounding)} + " from " +
         std::to_string(layout.first_in_parameter);
}

/// What a run's arrays hold at first.
struct Start {
  Floats weight, gradient, first, second;

  explicit Start(std::int64_t elems)
      : weight{random_floats(elems, 1)},
        gradient{random_floats(elems, 2)},
        first{random_floats(elems, 3, 0.1F)},
        second{random_floats(elems, 4, 0.1F)} {
    for (float& value : second) { value = std::abs(value); }
  }
};

/// What they hold afterwards.
struct Outcome {
  Bytes weight, parameter, remainder, first, second;
};

/// Whether remainders are the same. Beside a NaN they are anything, as its bits are.
bool same_remainders(const Outcome& a, const Outcome& b) {
  if (a.remainder.size() != b.remainder.size()) { return false; }
  const auto half_at = [](const Bytes& bytes, std::size_t i) {
    std::uint16_t half = 0;
    std::memcpy(&half, &bytes[i], sizeof half);
    return half;
  };
  for (std::size_t i = 0; i < a.remainder.size(); i += sizeof(std::uint16_t)) {
    const bool nan = (half_at(a.parameter, i) & 0x7FFFU) > 0x7F80U;
    if (!nan && half_at(a.remainder, i) != half_at(b.remainder, i)) { return false; }
  }
  return true;
}

/// A part of floats as it lies in memory.
Bytes part_of(const Floats& floats, DType dtype, MasterPart part) {
  Bytes bytes(floats.size() * size_of(dtype));
  store_part({bytes.data(), dtype}, part, floats.data(), std::ssize(floats));
  return bytes;
}

/// Zeros, unless they are read.
Bytes first_parameters(const Layout& layout, const Start& start) {
  const Floats zeros = filled(layout.elems, 0.0F);
  return part_of(layout.remainder ? start.weight : zeros, layout.parameter, MasterPart::parameter);
}

UpdateRun common(const Layout& layout) {
  UpdateRun run;
  run.elems = layout.elems;
  run.rounding = layout.rounding;
  run.seed = 0x123456789ABCULL;
  run.parameter_id = 6;
  run.first_in_parameter = layout.first_in_parameter;
  return run;
}

/// Steps that one run is cut into.
using Step = std::function<void(const UpdateRun&)>;

Outcome on_host(const Layout& layout, const Start& start, int moments, const Step& step) {
  Floats weight = start.weight;
  Bytes gradient = encoded(start.gradient, layout.gradient);
  Outcome out{.weight = {},
              .parameter = first_parameters(layout, start),
              .remainder = part_of(start.weight, DType::bf16, MasterPart::remainder),
              .first = encoded(start.first, layout.first),
              .second = encoded(start.second, layout.second)};
  UpdateRun run = common(layout);
  if (layout.remainder) {
    run.remainder = reinterpret_cast<std::uint16_t*>(out.remainder.data());
  } else {
    run.master = weight.data();
  }
  run.gradient = {gradient.data(), layout.gradient};
  if (layout.parameter != DType::fp32) { run.parameter = {out.parameter.data(), layout.parameter}; }
  if (moments > 0) { run.first = {out.first.data(), layout.first}; }
  if (moments > 1) { run.second = {out.second.data(), layout.second}; }
  step(run);
  out.weight = encoded(weight, DType::fp32);
  return out;
}

Outcome on_device(CudaBench& bench, const Layout& layout, const Start& start, int moments,
                  const Step& step) {
  DeviceValues weight{bench, start.weight, DType::fp32, layout.offset};
  DeviceValues gradient{bench, start.gradient, layout.gradient,
                        layout.offset + layout.gradient_skew};
  const auto placed = [&](const Bytes& bytes, DType dtype) {
    const auto offset = layout.offset * static_cast<std::int64_t>(size_of(dtype));
    return DeviceArray<std::byte>{bench, bytes, offset};
  };
  auto parameter = placed(first_parameters(layout, start), layout.parameter);
  auto remainder = placed(part_of(start.weight, DType::bf16, MasterPart::remainder), DType::bf16);
  DeviceValues first{bench, start.first, layout.first, layout.offset};
  DeviceValues second{bench, start.second, layout.second, layout.offset};
  UpdateRun run = common(layout);
  if (layout.remainder) {
    run.remainder = reinterpret_cast<std::uint16_t*>(remainder.data());
  } else {
    run.master = weight.values().as<float>();
  }
  run.gradient = gradient.values();
  if (layout.parameter != DType::fp32) { run.parameter = {parameter.data(), layout.parameter}; }
  if (moments > 0) { run.first = first.values(); }
  if (moments > 1) { run.second = second.values(); }
  step(run);
  return {weight.read(), parameter.read(), remainder.read(), first.read(), second.read()};
}

StepScalars at_update(std::int64_t t, float factor = 0.37F) {
  StepScalars scalars;
  scalars.updates = t;
  scalars.gradient_factor = factor;
  return scalars;
}

class CudaUpdateTest : public CudaTest {
 protected:
  void expect_update(const Rule& rule, const Layout& layout, const StepScalars& scalars) {
    expect_update(rule, layout, scalars, Start{layout.elems});
  }
  void expect_update(const Rule& rule, const Layout& layout, const StepScalars& scalars,
                     const Start& start) {
    const Outcome expected = on_host(layout, start, rule.moments, [&](const UpdateRun& run) {
      rule.step(twin_.table(), run, &scalars, twin_.stream());
    });
    DeviceArray<StepScalars> on_gpu{bench(), std::vector<StepScalars>{scalars}};
    const Outcome actual =
        on_device(bench(), layout, start, rule.moments,
                  [&](const UpdateRun& run) { rule.step(table(), run, on_gpu.data(), stream()); });
    EXPECT_TRUE(same_values(actual.weight, expected.weight, DType::fp32))
        << rule.name << ": weight of " << text(layout);
    EXPECT_TRUE(same_values(actual.parameter, expected.parameter, layout.parameter))
        << rule.name << ": parameter of " << text(layout);
    EXPECT_TRUE(same_remainders(actual, expected))
        << rule.name << ": remainder of " << text(layout);
    EXPECT_TRUE(same_values(actual.first, expected.first, layout.first))
        << rule.name << ": first moment of " << text(layout);
    EXPECT_TRUE(same_values(actual.second, expected.second, layout.second))
        << rule.name << ": second moment of " << text(layout);
  }

  CpuTwin twin_;
};

TEST_F(CudaUpdateTest, HasTheCpusBitsInFp32) {
  for (const Rule& rule : rules()) {
    for (const std::int64_t elems : kSizes) {
      Layout layout;
      layout.elems = elems;
      expect_update(rule, layout, at_update(7));
    }
  }
}

TEST_F(CudaUpdateTest, HasTheCpusBitsInEveryMixOfDtypes) {
  for (const Rule& rule : rules()) {
    for (const DType gradient : kElementTypes) {
      for (const DType parameter : kElementTypes) {
        for (const DType moment : {DType::fp32, DType::bf16}) {
          for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
            Layout layout;
            layout.elems = 700;
            layout.gradient = gradient;
            layout.parameter = parameter;
            layout.first = moment;
            layout.second = moment;
            layout.rounding = rounding;
            layout.first_in_parameter = 64;
            expect_update(rule, layout, at_update(3));
          }
        }
      }
    }
  }
}

TEST_F(CudaUpdateTest, MomentsMayBeOfTwoDtypes) {
  Layout layout;
  layout.elems = 1003;
  layout.first = DType::bf16;
  expect_update(rules().front(), layout, at_update(3));
  layout.second = DType::bf16;
  layout.first = DType::fp32;
  layout.rounding = Rounding::stochastic;
  expect_update(rules().front(), layout, at_update(3));
}

TEST_F(CudaUpdateTest, EveryStartGivesTheSameBits) {
  for (const Rule& rule : rules()) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      for (const std::int64_t offset : {1, 2, 3, 4, 5, 7, 8}) {
        for (const std::int64_t skew : {0, 1}) {  // 1: arrays that are never aligned together
          Layout layout;
          layout.elems = 600;
          layout.gradient = DType::bf16;
          layout.parameter = offset % 2 == 0 ? DType::fp16 : DType::bf16;
          layout.first = DType::bf16;
          layout.rounding = rounding;
          layout.offset = offset;
          layout.gradient_skew = skew;
          layout.first_in_parameter = (std::int64_t{1} << 34) + offset;
          expect_update(rule, layout, at_update(2));
        }
      }
    }
  }
}

// Random words are taken by the place in the parameter, which may be out of step with the memory.
TEST_F(CudaUpdateTest, RoundsByThePlaceInTheParameter) {
  for (const std::int64_t first : {1, 2, 3, 1001}) {
    Layout layout;
    layout.elems = 600;
    layout.parameter = DType::bf16;
    layout.first = DType::bf16;
    layout.second = DType::bf16;
    layout.rounding = Rounding::stochastic;
    layout.first_in_parameter = first;
    expect_update(rules().front(), layout, at_update(2));
  }
}

TEST_F(CudaUpdateTest, ALongRunTakesSeveralTilesAWarp) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    Layout layout;
    layout.elems = 1'400'003;  // more tiles than the grid has warps
    layout.gradient = DType::bf16;
    layout.parameter = DType::bf16;
    layout.rounding = rounding;
    expect_update(rules().front(), layout, at_update(12));
  }
}

// The property that sharding stands on.
TEST_F(CudaUpdateTest, ShardsGiveTheSameBitsAsTheWhole) {
  const Rule rule = rules().front();
  const StepScalars scalars = at_update(3);
  DeviceArray<StepScalars> on_gpu{bench(), std::vector<StepScalars>{scalars}};
  Layout layout;
  layout.elems = 5000;
  layout.gradient = DType::bf16;
  layout.parameter = DType::bf16;
  layout.rounding = Rounding::stochastic;
  const Start start{layout.elems};
  const auto in_pieces = [&](const std::vector<std::int64_t>& cuts) {
    return on_device(bench(), layout, start, rule.moments, [&](const UpdateRun& run) {
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        rule.step(table(), run.slice(cuts[i], cuts[i + 1] - cuts[i]), on_gpu.data(), stream());
      }
    });
  };
  const Outcome whole = in_pieces({0, layout.elems});
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Outcome sharded = in_pieces(random_cuts(layout.elems, 7, seed));
    EXPECT_EQ(whole.weight, sharded.weight);
    EXPECT_EQ(whole.parameter, sharded.parameter);
    EXPECT_EQ(whole.first, sharded.first);
    EXPECT_EQ(whole.second, sharded.second);
  }
}

TEST_F(CudaUpdateTest, SpecialValuesHaveTheCpusBits) {
  const Floats special{0.0F,   -0.0F,     1e-45F, -1e-40F, 1e-38F, 3e38F, 7e-8F,   -5e-6F,
                       -3e38F, kInfinity, 1.0F,   1e-20F,  1e20F,  kNan,  65520.F, -kInfinity};
  Start start{static_cast<std::int64_t>(special.size() * special.size())};
  for (std::size_t i = 0; i < start.gradient.size(); ++i) {
    start.gradient[i] = special[i % special.size()];
    start.weight[i] = special[i / special.size()];
    start.second[i] = std::abs(special[i / special.size()]);
  }
  for (const Rule& rule : rules()) {
    for (const DType parameter : {DType::bf16, DType::fp16}) {
      for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        Layout layout;
        layout.elems = std::ssize(start.weight);
        layout.parameter = parameter;
        layout.rounding = rounding;
        expect_update(rule, layout, at_update(5, 1.0F), start);
      }
    }
  }
}

// Infinities, both ends of the range, denormals and ties: each has one pair of halves.
TEST_F(CudaUpdateTest, SpecialValuesInHalvesHaveTheCpusBits) {
  const Floats special{0.0F,   -0.0F,     1e-45F,         -1e-40F,         1e-38F,      3e38F,
                       -3e38F, kInfinity, 1.0F + 0x1p-8F, -1.0F - 0x1p-8F, 0x1.ffp127F, 1e20F};
  Start start{static_cast<std::int64_t>(special.size() * special.size())};
  for (std::size_t i = 0; i < start.gradient.size(); ++i) {
    start.gradient[i] = i % 2 == 0 ? 0.0F : 1e-3F;
    start.weight[i] = special[i / special.size()];
    start.first[i] = 0.0F;
  }
  for (const Rule& rule : rules()) {
    if (std::string{rule.name} == "round_weights") { continue; }
    Layout layout;
    layout.elems = std::ssize(start.weight);
    layout.parameter = DType::bf16;
    layout.remainder = true;
    expect_update(rule, layout, at_update(5, 1.0F), start);
  }
}

// At every start, also where arrays are never aligned together and every element is a single one.
TEST_F(CudaUpdateTest, RemaindersHaveTheCpusBits) {
  for (const Rule& rule : rules()) {
    if (std::string{rule.name} == "round_weights") { continue; }  // masters are whole
    for (const DType gradient : {DType::fp32, DType::bf16}) {
      for (const std::int64_t offset : {0, 1, 4, 8}) {
        for (const std::int64_t skew : {0, 1}) {
          Layout layout;
          layout.elems = 1200;
          layout.gradient = gradient;
          layout.parameter = DType::bf16;
          layout.first = gradient;
          layout.offset = offset;
          layout.gradient_skew = skew;
          layout.remainder = true;
          expect_update(rule, layout, at_update(2));
        }
      }
    }
  }
}

// As whole masters: joined where they are kept in halves.
TEST_F(CudaUpdateTest, RemaindersTrainAsWholeMasters) {
  const StepScalars scalars = at_update(3);
  DeviceArray<StepScalars> on_gpu{bench(), std::vector<StepScalars>{scalars}};
  for (const Rule& rule : rules()) {
    if (std::string{rule.name} == "round_weights") { continue; }
    Layout layout;
    layout.elems = 3000;
    layout.parameter = DType::bf16;
    const Start start{layout.elems};
    const auto trained = [&] {
      return on_device(bench(), layout, start, rule.moments, [&](const UpdateRun& run) {
        for (int update = 0; update < 5; ++update) {
          rule.step(table(), run, on_gpu.data(), stream());
        }
      });
    };
    const Outcome whole = trained();
    layout.remainder = true;
    const Outcome halves = trained();
    Floats joined(start.weight.size());
    join_masters(joined.data(), reinterpret_cast<const bfloat16*>(halves.parameter.data()),
                 reinterpret_cast<const std::uint16_t*>(halves.remainder.data()), layout.elems);
    EXPECT_EQ(encoded(joined, DType::fp32), whole.weight) << rule.name;
    EXPECT_EQ(halves.parameter, whole.parameter) << rule.name;
    EXPECT_EQ(halves.first, whole.first) << rule.name;
    EXPECT_EQ(halves.second, whole.second) << rule.name;
  }
}

TEST_F(CudaUpdateTest, TheFactorsHaveTheCpusBitsAtEveryUpdate) {
  for (const std::int64_t t : {1LL, 2LL, 10LL, 999LL, 65536LL, 1'000'000LL, 3'000'000'000LL}) {
    Layout layout;
    layout.elems = 40;
    expect_update(rules()[0], layout, at_update(t));
    expect_update(rules()[1], layout, at_update(t));
  }
}

TEST_F(CudaUpdateTest, ARefusedStepWritesNothing) {
  StepScalars scalars = at_update(4);
  scalars.apply = 0;
  for (const Rule& rule : rules()) {
    Layout layout;
    layout.elems = 1000;
    layout.parameter = DType::bf16;
    expect_update(rule, layout, scalars);
    if (std::string{rule.name} == "round_weights") { continue; }
    layout.remainder = true;
    expect_update(rule, layout, scalars);
  }
}

}  // namespace
}  // namespace tessera::kernels
