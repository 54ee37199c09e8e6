// Optimizers with quantised moments.
#include "kernels/update/moment_code.hpp"
#include "kernels/updates.hpp"

namespace tessera::kernels::quantised_update_test {
namespace {

using namespace updates;

std::vector<StepScalars> updates_to(std::int64_t last) {
  std::vector<StepScalars> all;
  for (std::int64_t t = 1; t <= last; ++t) { all.push_back(at_update(t)); }
  return all;
}

/// Gradients, some tiny next to their neighbours.
Start start_of(std::int64_t elems, unsigned updates) {
  Start start{elems, updates};
  for (Floats& gradient : start.gradients) {
    for (std::size_t i = 0; i < gradient.size(); i += 7) { gradient[i] *= 1e-7F; }
  }
  return start;
}

/// Layout that starts at the second block of a parameter.
Layout quantised(std::int64_t elems) {
  return {.elems = elems,
          .quantised = true,
          .first_in_parameter = (std::int64_t{1} << 34) + kMomentBlock};
}

class QuantisedUpdateKernels : public UpdateTest {};
INSTANTIATE_TEST_SUITE_P(Backends, QuantisedUpdateKernels, backends(), backend_name);

TEST_P(QuantisedUpdateKernels, HaveTheReferencesBitsAtEverySize) {
  for (const Rule& rule : rules_of_moments()) {
    for (const std::int64_t elems : {0, 1, 255, 256, 257, 1003, 1500}) {
      expect_reference(rule, quantised(elems), updates_to(4), start_of(elems, 4));
    }
  }
}

TEST_P(QuantisedUpdateKernels, HaveTheReferencesBitsInEveryMixOfDtypes) {
  const Start start = start_of(700, 4);
  for (const Rule& rule : rules_of_moments()) {
    for (const DType gradient : kValueDTypes) {
      for (const DType parameter : kValueDTypes) {
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
          Layout layout = quantised(700);
          layout.gradient = gradient;
          layout.parameter = parameter;
          layout.rounding = rounding;
          expect_reference(rule, layout, updates_to(4), start);
        }
      }
    }
  }
}

TEST_P(QuantisedUpdateKernels, ArraysMayBeUnaligned) {
  for (const std::int64_t offset : {1, 2, 4}) {
    Layout layout = quantised(700);
    layout.parameter = DType::bf16;
    layout.offset = offset;
    expect_reference(rules_of_moments().front(), layout, updates_to(3), start_of(700, 3));
  }
  for (const std::int64_t offset : {1, 2, 4}) {
    Layout first = quantised(700), second = quantised(700);
    first.first_offset = second.second_offset = offset;
    for (const Layout& layout : {first, second}) {
      expect_reference(rules_of_moments().front(), layout, updates_to(3), start_of(700, 3));
    }
  }
}

// More blocks than CUDA's grid has warps.
TEST_P(QuantisedUpdateKernels, ALongRunHasTheReferencesBits) {
  Layout layout = quantised(TESSERA_SANITIZED && !on_cuda() ? 100'003 : 1'400'003);
  layout.gradient = DType::bf16;
  expect_reference(rules_of_moments().front(), layout, updates_to(1), start_of(layout.elems, 1));
}

// ZeRO relies on this for every cut between blocks.
TEST_P(QuantisedUpdateKernels, NoCutBetweenBlocksChangesABit) {
  for (const Rule& rule : rules_of_moments()) {
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{0, 256, 1280, 1536, 3000},
          {0, 256, 1024, 1280, 25'600, 30'001}}) {
      Layout layout = quantised(cuts.back());
      layout.parameter = DType::bf16;
      const Start start = start_of(layout.elems, 3);
      EXPECT_EQ(in_pieces(rule, layout, start, updates_to(3), cuts),
                on_device(rule, layout, start, updates_to(3)))
          << rule.name;
    }
  }
}

// Joined masters equal whole masters; so do the quantised moments.
TEST_P(QuantisedUpdateKernels, RemaindersOfMastersTrainAsWholeOnes) {
  const Start start = start_of(700, 3);
  for (const Rule& rule : rules_of_moments()) {
    for (const std::int64_t offset : {0, 1}) {
      Layout layout = quantised(700);
      layout.parameter = DType::bf16;
      layout.offset = offset;
      const Outcome whole = on_device(rule, layout, start, updates_to(3));
      layout.remainder = true;
      const Outcome halves = on_device(rule, layout, start, updates_to(3));
      EXPECT_EQ(joined(halves), whole.weight) << rule.name << " at " << offset;
      EXPECT_EQ(halves.first, whole.first) << rule.name << " at " << offset;
      EXPECT_EQ(halves.second, whole.second) << rule.name << " at " << offset;
      expect_reference(rule, layout, updates_to(3), start);
    }
  }
}

TEST_P(QuantisedUpdateKernels, ARefusedStepLeavesEverythingUntouched) {
  StepScalars refused = at_update(4);
  refused.apply = 0;
  const Start start = start_of(600, 1);
  for (const Rule& rule : rules_of_moments()) {
    std::vector<StepScalars> scalars{at_update(1)};
    const Outcome before = on_device(rule, quantised(600), start, scalars);
    scalars.push_back(refused);
    EXPECT_EQ(on_device(rule, quantised(600), start, scalars), before) << rule.name;
    EXPECT_EQ(by_reference(rule, quantised(600), start, scalars),
              by_reference(rule, quantised(600), start, {at_update(1)}))
        << rule.name;
  }
}

// In the first update the weight moves by moments that are not rounded yet.
TEST_P(QuantisedUpdateKernels, TheWeightMovesByMomentsBeforeTheyAreQuantised) {
  Start start = start_of(700, 1);
  start.first = start.second = filled(700, 0.0F);
  Layout wide = quantised(700);
  wide.quantised = false;
  for (const Rule& rule : rules_of_moments()) {
    EXPECT_EQ(on_device(rule, quantised(700), start, updates_to(1)).weight,
              on_device(rule, wide, start, updates_to(1)).weight)
        << rule.name;
  }
}

TEST_P(QuantisedUpdateKernels, SpecialValuesHaveTheReferencesBitsAndStayFinite) {
  const Floats special{0.0F, -0.0F, 1e-45F, -1e-40F, 1e-38F, 1e-20F,
                       1.0F, 3e38F, -3e38F, 1e19F,   -1e20F, 7e-8F};
  Start start{2048};
  for (std::size_t i = 0; i < 2048; ++i) {
    start.gradients[0][i] = special[(i + i / kMomentBlock) % (1 + i / 171)];
  }
  for (const Rule& rule : rules_of_moments()) {
    expect_reference(rule, quantised(2048), updates_to(3), start);
    const Outcome kept = on_device(rule, quantised(2048), start, updates_to(3));
    const Floats first = decoded(kept.first_scales, DType::fp32);
    const Floats second = decoded(kept.second_scales, DType::fp32);
    for (std::size_t i = 0; i < 2048; ++i) {
      const std::size_t block = i / kMomentBlock;
      ASSERT_TRUE(std::isfinite(
          FirstCode::decode(std::to_integer<std::uint32_t>(kept.first[i]), first[block])));
      if (rule.moments < 2) { continue; }
      ASSERT_TRUE(std::isfinite(
          SecondCode::decode(std::to_integer<std::uint32_t>(kept.second[i]), second[block])));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::quantised_update_test
