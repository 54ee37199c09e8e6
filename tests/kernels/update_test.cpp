// Every optimizer kernel makes one pass with the reference's bits, in every mix of dtypes, with
// each rounding, wherever the run is cut.
#include "kernels/updates.hpp"

namespace tessera::kernels::update_test {
namespace {

using namespace updates;

/// body(layout) for every mix of dtypes, rounding and kind of masters.
template <class Body>
void for_all_mixes(Layout layout, Body body) {
  for (const DType gradient : kValueDTypes) {
    for (const DType parameter : kValueDTypes) {
      for (const DType moment : {DType::fp32, DType::bf16}) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
          for (const bool remainder : {false, true}) {
            if (remainder && parameter != DType::bf16) { continue; }
            layout.gradient = gradient;
            layout.parameter = parameter;
            layout.first = layout.second = moment;
            layout.rounding = rounding;
            layout.remainder = remainder;
            body(std::as_const(layout));
          }
        }
      }
    }
  }
}

/// The last step of an update that is not a kernel's.
Rule round_weights() {
  return {"round_weights", 0,
          [](const UpdateRun& run, const StepScalars* scalars, Stream stream) {
            reference::round_weights(run, scalars, stream);
          },
          [](const Table& table, std::span<const UpdateRun> runs, const StepScalars* scalars,
             Stream stream) {
            for (const UpdateRun& run : runs) { table.round_weights(run, scalars, stream); }
          }};
}

class UpdateKernels : public UpdateTest {};
INSTANTIATE_TEST_SUITE_P(Backends, UpdateKernels, backends(), backend_name);

TEST_P(UpdateKernels, HaveTheReferencesBitsAtEverySize) {
  for (const Rule& rule : rules()) {
    for (const std::int64_t elems : kSizes) {
      expect_reference(rule, {.elems = elems}, {at_update(7)});
    }
  }
}

TEST_P(UpdateKernels, HaveTheReferencesBitsInEveryMixOfDtypes) {
  for (const std::int64_t elems : {0, 1, 31, 257, 1500}) {
    const Start start{elems};
    for (const Rule& rule : rules()) {
      for_all_mixes({.elems = elems, .first_in_parameter = 64}, [&](const Layout& layout) {
        expect_reference(rule, layout, {at_update(7)}, start);
      });
    }
  }
}

TEST_P(UpdateKernels, MomentsMayBeOfTwoDtypes) {
  expect_reference(rules().front(), {.elems = 1003, .first = DType::bf16}, {at_update(3)});
  expect_reference(rules().front(),
                   {.elems = 1003, .second = DType::bf16, .rounding = Rounding::stochastic},
                   {at_update(3)});
}

TEST_P(UpdateKernels, EveryAlignmentGivesTheSameBits) {
  for (const Rule& rule : rules()) {
    for (std::int64_t offset = 1; offset < 17; ++offset) {
      expect_reference(rule, {.elems = 270, .offset = offset}, {at_update(2)});
    }
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      for (const std::int64_t offset : {1, 2, 3, 4, 5, 7, 8}) {
        for (const std::int64_t skew : {0, 1}) {  // 1: arrays are never aligned together
          expect_reference(rule,
                           {.elems = 600,
                            .gradient = DType::bf16,
                            .parameter = offset % 2 == 0 ? DType::fp16 : DType::bf16,
                            .first = DType::bf16,
                            .rounding = rounding,
                            .offset = offset,
                            .gradient_skew = skew,
                            .first_in_parameter = (std::int64_t{1} << 34) + offset},
                           {at_update(2)});
        }
      }
    }
  }
}

// Four elements after an aligned address, fp32 is aligned and 16 bits are not.
TEST_P(UpdateKernels, AnArrayOf16BitsIsAlignedLaterThanTheOthers) {
  Layout gradient{.elems = 600, .offset = 4};
  Layout parameter = gradient, first = gradient, second = gradient, remainder = gradient;
  gradient.gradient = parameter.parameter = first.first = second.second = DType::bf16;
  remainder.parameter = DType::bf16;
  remainder.remainder = true;
  for (const Rule& rule : rules()) {
    for (const Layout& layout : {gradient, parameter, first, second, remainder}) {
      expect_reference(rule, layout, {at_update(2)});
    }
  }
}

// Every start, including arrays that are never aligned together, where every element is handled
// singly.
TEST_P(UpdateKernels, RemaindersHaveTheReferencesBitsAtEveryStart) {
  for (const Rule& rule : rules()) {
    for (const DType gradient : {DType::fp32, DType::bf16}) {
      for (const std::int64_t offset : {0, 1, 4, 8}) {
        for (const std::int64_t skew : {0, 1}) {
          expect_reference(rule,
                           {.elems = 1200,
                            .gradient = gradient,
                            .parameter = DType::bf16,
                            .first = gradient,
                            .remainder = true,
                            .offset = offset,
                            .gradient_skew = skew},
                           {at_update(2)});
        }
      }
    }
  }
}

// Random words depend on the position in the parameter, which may be misaligned with the memory.
TEST_P(UpdateKernels, RoundByThePlaceInTheParameter) {
  for (const std::int64_t first : {1, 2, 3, 1001}) {
    expect_reference(rules().front(),
                     {.elems = 600,
                      .parameter = DType::bf16,
                      .first = DType::bf16,
                      .second = DType::bf16,
                      .rounding = Rounding::stochastic,
                      .first_in_parameter = first},
                     {at_update(2)});
  }
}

// More tiles than CUDA's grid has warps.
TEST_P(UpdateKernels, ALongRunHasTheReferencesBits) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    expect_reference(rules().front(),
                     {.elems = TESSERA_SANITIZED && !on_cuda() ? 100'003 : 1'400'003,
                      .gradient = DType::bf16,
                      .parameter = DType::bf16,
                      .rounding = rounding},
                     {at_update(12)});
  }
}

// ZeRO relies on this, with stochastic rounding too: it depends on the element, not on the shard.
TEST_P(UpdateKernels, ShardsGiveTheSameBitsAsTheWhole) {
  const auto expect_same = [&](const Rule& rule, const Layout& layout, const Start& start,
                               const std::vector<std::int64_t>& cuts) {
    SCOPED_TRACE(std::string{rule.name} + ", " + text(layout));
    EXPECT_EQ(in_pieces(rule, layout, start, {at_update(3)}, cuts),
              on_device(rule, layout, start, {at_update(3)}));
  };
  const Start start{1700}, longer{5000};
  for (const Rule& rule : rules()) {
    for_all_mixes({.elems = 1700}, [&](const Layout& layout) {
      expect_same(rule, layout, start, random_cuts(1700, 7, 1));
    });
    for (unsigned seed = 0; seed < 10; ++seed) {
      expect_same(rule, {.elems = 5000}, longer, random_cuts(5000, 7, seed));
      expect_same(rule,
                  {.elems = 5000,
                   .gradient = DType::bf16,
                   .parameter = DType::bf16,
                   .rounding = Rounding::stochastic},
                  longer, random_cuts(5000, 7, seed));
    }
  }
}

// Runs that need three CUDA kernels, each with its own arguments, and more than fit into one
// launch.
TEST_P(UpdateKernels, EveryRunOfATableUsesItsOwnNumbers) {
  const std::vector<Layout> layouts = {
      {.elems = 1500, .gradient = DType::bf16, .parameter = DType::bf16},
      {.elems = 2600, .parameter = DType::bf16, .remainder = true},
      {.elems = 1000, .parameter = DType::fp16, .rounding = Rounding::stochastic},
      {.elems = 1281, .quantised = true},
      {.elems = 1024, .quantised = true}};
  constexpr std::size_t count = 200;
  const auto update = [&](DeviceBench& on, auto&& step) {
    std::vector<std::unique_ptr<Arrays>> arrays;
    std::vector<std::unique_ptr<DeviceValues>> gradients;
    std::vector<RuledRun<AdamW>> runs;
    DeviceArray<StepScalars> scalars{on, std::vector<StepScalars>{at_update(3)}};
    for (std::size_t i = 0; i < count; ++i) {
      const bool tiny = i % 4 != 0;  // most runs are small, like biases next to weights
      Layout layout = layouts[i < 170 ? i % 2 : 2 + i % 3];
      if (tiny) { layout.elems = static_cast<std::int64_t>(i % 40); }
      Start start{layout.elems};
      if (layout.quantised) { start.first = start.second = filled(layout.elems, 0.0F); }
      arrays.push_back(std::make_unique<Arrays>(on, layout, start));
      gradients.push_back(std::make_unique<DeviceValues>(on, start.gradients[0], layout.gradient));
      AdamW hyper{.lr = 0.01F * static_cast<float>(1 + i % 3)};
      if (i % 2 == 0) { hyper.weight_decay = 0.0F; }
      runs.push_back({arrays.back()->run(2, *gradients.back()), hyper});
    }
    step(runs, scalars.data());
    std::vector<Outcome> outcomes;
    for (const auto& array : arrays) { outcomes.push_back(array->read()); }
    return outcomes;
  };
  DeviceBench host{make_cpu_device()};
  const auto expected = update(host, [&](const auto& runs, const StepScalars* scalars) {
    reference::adamw(runs, scalars, host.stream());
  });
  const auto actual = update(bench(), [&](const auto& runs, const StepScalars* scalars) {
    table().adamw(runs, scalars, stream());
  });
  for (std::size_t i = 0; i < count; ++i) { ASSERT_EQ(actual[i], expected[i]) << "run " << i; }
}

TEST_P(UpdateKernels, SpecialValuesHaveTheReferencesBits) {
  const Floats special{0.0F,   -0.0F,     1e-45F, -1e-40F, 1e-38F, 3e38F, 7e-8F,   -5e-6F,
                       -3e38F, kInfinity, 1.0F,   1e-20F,  1e20F,  kNan,  65520.F, -kInfinity};
  Start start{static_cast<std::int64_t>(special.size() * special.size())};
  const Floats weights = start.weight;
  for (std::size_t i = 0; i < start.weight.size(); ++i) {
    start.gradients[0][i] = special[i % special.size()];
    start.second[i] = std::abs(special[i / special.size()]);
  }
  for (const bool weights_too : {false, true}) {
    for (std::size_t i = 0; i < start.weight.size(); ++i) {
      start.weight[i] = weights_too ? special[i / special.size()] : weights[i];
    }
    for (const Rule& rule : rules()) {
      for (const DType parameter : kValueDTypes) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
          expect_reference(
              rule,
              {.elems = std::ssize(start.weight), .parameter = parameter, .rounding = rounding},
              {at_update(5, 1.0F)}, start);
        }
      }
    }
  }
}

// Infinities, both ends of the range, denormals and ties: each has one pair of halves.
TEST_P(UpdateKernels, SpecialValuesInHalvesHaveTheReferencesBits) {
  const Floats special{0.0F,   -0.0F,     1e-45F,         -1e-40F,         1e-38F,      3e38F,
                       -3e38F, kInfinity, 1.0F + 0x1p-8F, -1.0F - 0x1p-8F, 0x1.ffp127F, 1e20F};
  Start start{static_cast<std::int64_t>(special.size() * special.size())};
  for (std::size_t i = 0; i < start.weight.size(); ++i) {
    start.gradients[0][i] = i % 2 == 0 ? 0.0F : 1e-3F;
    start.weight[i] = special[i / special.size()];
    start.first[i] = 0.0F;
  }
  for (const Rule& rule : rules()) {
    expect_reference(
        rule, {.elems = std::ssize(start.weight), .parameter = DType::bf16, .remainder = true},
        {at_update(5, 1.0F)}, start);
  }
}

// Nothing moves these masters. They are rounded as the parameters of masters in halves are.
TEST_P(UpdateKernels, MastersBetweenTwoParametersAreRoundedAwayFromZero) {
  Start start{300};  // a tile of CUDA, and single elements
  for (std::size_t i = 0; i < start.weight.size(); ++i) {
    start.weight[i] = (i % 2 == 0 ? 1.0F : -1.0F) * (1.0F + 0x1p-8F);
  }
  start.first = start.second = start.gradients[0] = filled(300, 0.0F);
  const Rule still =
      rule("adamw", 2, AdamW{.weight_decay = 0.0F}, &reference::adamw, &Table::adamw);
  for (const Rule& rule : {still, round_weights()}) {
    const Layout layout{.elems = 300, .parameter = DType::bf16};
    expect_reference(rule, layout, {at_update(2)}, start);
    const Floats parameter =
        decoded(on_device(rule, layout, start, {at_update(2)}).parameter, DType::bf16);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      ASSERT_EQ(parameter[i], (i % 2 == 0 ? 1.0F : -1.0F) * (1.0F + 0x1p-7F)) << rule.name;
    }
  }
}

// Remainders train like whole masters, with half of their bytes.
TEST_P(UpdateKernels, RemaindersTrainAsWholeMasters) {
  std::vector<StepScalars> scalars;
  for (std::int64_t update = 1; update <= 20; ++update) { scalars.push_back(at_update(update)); }
  const Start start{1500};
  for (const Rule& rule : rules()) {
    for (const DType gradient : {DType::fp32, DType::bf16}) {
      for (const DType moment : {DType::fp32, DType::bf16}) {
        Layout layout{.elems = 1500,
                      .gradient = gradient,
                      .parameter = DType::bf16,
                      .first = moment,
                      .second = moment};
        const Outcome whole = on_device(rule, layout, start, scalars);
        layout.remainder = true;
        const Outcome halves = on_device(rule, layout, start, scalars);
        EXPECT_NE(halves.parameter, part_of(start.weight, DType::bf16, MasterPart::parameter))
            << "nothing was trained";
        EXPECT_EQ(joined(halves), whole.weight) << rule.name << ", " << text(layout);
        EXPECT_EQ(halves.parameter, whole.parameter) << rule.name;
        EXPECT_TRUE(halves.first == whole.first && halves.second == whole.second) << rule.name;
      }
    }
  }
}

TEST_P(UpdateKernels, TheFactorsHaveTheReferencesBitsAtEveryUpdate) {
  for (const std::int64_t t : {1LL, 2LL, 10LL, 999LL, 65536LL, 1'000'000LL, 3'000'000'000LL}) {
    expect_reference(rules()[0], {.elems = 40}, {at_update(t)});
    expect_reference(rules()[1], {.elems = 40}, {at_update(t)});
  }
}

TEST_P(UpdateKernels, ARefusedStepLeavesEverythingUntouched) {
  StepScalars refused = at_update(4);
  refused.apply = 0;
  Start start{600};
  start.gradients[0][500] = kNan;
  std::vector<Rule> all = rules();
  all.push_back(round_weights());
  for (const Rule& rule : all) {
    for_all_mixes({.elems = 600}, [&](const Layout& layout) {
      if (rule.name == round_weights().name && layout.remainder) { return; }
      SCOPED_TRACE(std::string{rule.name} + ", " + text(layout));
      const Outcome before = on_device(rule, layout, start, {});
      EXPECT_EQ(on_device(rule, layout, start, {refused}), before);
      EXPECT_EQ(by_reference(rule, layout, start, {refused}), before);
    });
  }
}

TEST_P(UpdateKernels, TheCopyIsTheRoundedMaster) {
  const Start start{900};
  for (const Rule& rule : rules()) {
    for (const DType low : {DType::bf16, DType::fp16}) {
      const Outcome outcome =
          on_device(rule, {.elems = 900, .parameter = low}, start, {at_update(2)});
      EXPECT_EQ(outcome.parameter,
                part_of(decoded(outcome.weight, DType::fp32), low, MasterPart::parameter))
          << rule.name << " " << to_string(low);
    }
  }
}

TEST_P(UpdateKernels, RoundingWeightsAloneWritesTheCopyAndNothingElse) {
  for (const std::int64_t elems : {0, 1, 257, 900}) {
    const Start start{elems};
    for_all_mixes({.elems = elems}, [&](const Layout& layout) {
      if (layout.remainder) { return; }  // whole masters: nothing to round
      expect_reference(round_weights(), layout, {at_update(2)}, start);
      Outcome before = on_device(round_weights(), layout, start, {});
      const Outcome after = on_device(round_weights(), layout, start, {at_update(2)});
      if (elems == 900) {
        EXPECT_EQ(after.parameter == before.parameter, layout.parameter == DType::fp32);
      }
      before.parameter = after.parameter;
      EXPECT_EQ(after, before);
    });
  }
}

TEST_P(UpdateKernels, RoundingWeightsAloneHasTheReferencesBitsAtEveryStartAndSpecialValue) {
  Start special{16};
  special.weight = {0.0F,   -0.0F,     1e-45F, -1e-40F, 1e-38F, 3e38F, 7e-8F,   -5e-6F,
                    -3e38F, kInfinity, 1.0F,   1e-20F,  1e20F,  kNan,  65520.F, -kInfinity};
  for (const DType parameter : {DType::bf16, DType::fp16}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      Layout layout{.elems = 16, .parameter = parameter, .rounding = rounding};
      expect_reference(round_weights(), layout, {at_update(5)}, special);
      layout.elems = 600;
      for (const std::int64_t offset : {1, 2, 3, 4, 5, 7, 8}) {
        layout.offset = offset;
        layout.first_in_parameter = (std::int64_t{1} << 34) + offset;
        expect_reference(round_weights(), layout, {at_update(2)});
      }
    }
  }
}

// The update is computed in fp32: it uses exactly what the 16-bit gradient holds.
TEST_P(UpdateKernels, ASixteenBitGradientCountsAsItsValueInFp32) {
  for (const Rule& rule : rules()) {
    Start start{900};
    start.gradients[0] = rounded(DType::bf16, start.gradients[0]);
    const Outcome low =
        on_device(rule, {.elems = 900, .gradient = DType::bf16}, start, {at_update(2)});
    const Outcome wide = on_device(rule, {.elems = 900}, start, {at_update(2)});
    EXPECT_EQ(low, wide) << rule.name;
  }
}

/// The outcome of a rule with this number of CPU threads.
Outcome on_threads(int threads, const Rule& rule, const Layout& layout) {
  DeviceBench bench{make_cpu_device({.threads = threads})};
  return outcome_of(bench, layout, Start{layout.elems}, rule.moments, {at_update(3)},
                    [&](const UpdateRun& run, const StepScalars* scalars) {
                      rule.kernel(bench.table(), {&run, 1}, scalars, bench.stream());
                    });
}

TEST(UpdatesOnThreads, HaveTheSameBits) {
  for (const Rule& rule : rules()) {
    const Layout layout{.elems = 30'001,
                        .gradient = DType::bf16,
                        .parameter = DType::bf16,
                        .first = DType::bf16,
                        .second = DType::bf16,
                        .rounding = Rounding::stochastic};
    EXPECT_EQ(on_threads(3, rule, layout), on_threads(1, rule, layout)) << rule.name;
    if (rule.moments == 0) { continue; }
    const Layout quantised{.elems = 30'001, .quantised = true};
    EXPECT_EQ(on_threads(3, rule, quantised), on_threads(1, rule, quantised)) << rule.name;
  }
}

TEST(UpdatesOnThreads, RunWhereTheirStreamRuns) {
  DeviceBench cpu{make_cpu_device()};
  const OwnedStream side = cpu.device().make_side_stream("kernels");
  const Rule adamw = rules().front();
  const auto outcome = [&](Stream stream) {
    return outcome_of(cpu, {}, Start{700}, 2, {at_update(1)},
                      [&](const UpdateRun& run, const StepScalars* scalars) {
                        adamw.kernel(cpu.table(), {&run, 1}, scalars, stream);
                        stream.wait();
                      });
  };
  EXPECT_EQ(outcome(side.get()), outcome(cpu.stream()));
}

}  // namespace
}  // namespace tessera::kernels::update_test
