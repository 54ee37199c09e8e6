#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/decoder_configs.hpp"
#include "support/gpt_run.hpp"
#include "support/groups.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

// GPT-2 with sizes that no number of ranks divides, under every strategy, on streams that really
// run concurrently.
namespace tessera::test::gpt_test {
namespace {

// Large enough that most kernels divide their work over threads.
constexpr nn::DecoderConfig kWide{.layers = 2, .hidden = 132, .heads = 4, .vocab = 301, .seq = 70};

constexpr int kFifty = TESSERA_SANITIZED ? 10 : 50;  // 50 would take minutes

class GPTParity : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GPTParity,
                         ::testing::ValuesIn(tried_ranks({1, 2, 3, 4, 8}, {1, 3})),
                         ::testing::PrintToStringParamName());

TEST_P(GPTParity, FiftyStepsWithClippingAreBitIdenticalUnderEveryStrategy) {
  GPTRun run;
  run.ranks = GetParam();
  run.steps = kFifty;
  const ToyOutcome expected = train_gpt(run);
  ASSERT_EQ(std::ssize(expected.losses), run.steps);
  EXPECT_TRUE(expected.clipped);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  EXPECT_EQ(expected.parameters.size(), 4U + 3U * 12U);
  for (const Strategy strategy : tried_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
  }
}

class GPTPrecision : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Computes, GPTPrecision,
                         ::testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(GPTPrecision, FiftyStepsAreBitIdenticalUnderEveryStrategyRecomputedOrNot) {
  GPTRun run;
  run.options = {.compute = GetParam(), .accumulate = 2, .accumulate_mode = AccumulateMode::every};
  run.ranks = 2;
  run.steps = kFifty;
  const ToyOutcome expected = train_gpt(run);
  ASSERT_EQ(std::ssize(expected.losses), run.steps);
  // After only ten steps the last loss need not be the lowest.
  const bool short_run = run.steps < 50;
  EXPECT_LT(short_run ? std::ranges::min(expected.losses) : expected.losses.back(),
            expected.losses.front());
  for (const Strategy strategy : tried_strategies()) {
    for (const nn::Recompute& recompute : {nn::Recompute::none(), nn::Recompute::block()}) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      run.gpt.recompute = recompute;
      EXPECT_EQ(difference(expected, train_gpt(run)), "")
          << to_string(strategy) << ", recompute " << recompute.describe();
    }
  }
}

// Two dtypes in every unit: norms in fp32 next to the rest.
TEST_P(GPTPrecision, NormsInFp32AreTheSameUnderEveryStrategyAndCountFourBytes) {
  GPTRun run;
  run.options.compute = GetParam();
  run.ranks = 3;
  run.steps = 5;
  const ToyOutcome low = train_gpt(run);
  run.gpt.norms = DType::fp32;
  const ToyOutcome expected = train_gpt(run);
  EXPECT_EQ(difference(expected, low).empty(), GetParam() == DType::fp32);
  for (const Strategy strategy : tried_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
  }
  run_ranks(1, [&](World& world) {
    const auto parameters = [&](const nn::DecoderOptions& gpt) {
      auto model = shard(nn::Decoder{kSmallGPT, gpt}, world, {.compute = GetParam()});
      model.materialize(3);
      return model.model().state_bytes().parameters;
    };
    // 2 norms per layer and the last one, each with a weight and a bias of 21 values in 64.
    const std::size_t norms = std::size_t{64} * 2 * (2 * 3 + 1);
    EXPECT_EQ(parameters({.norms = DType::fp32}) - parameters({}),
              norms * (4 - size_of(GetParam())));
  });
}

// Gradients of 16 bits and communication in bf16; three ranks; both modes.
TEST_P(GPTPrecision, NarrowGradientsAndWiresAreTheSameUnderEveryStrategy) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const bool narrow_gradients : {false, true}) {
      GPTRun run;
      run.options = {.compute = GetParam(), .accumulate = 2, .accumulate_mode = mode};
      run.ranks = 3;
      run.steps = 4;
      (narrow_gradients ? run.options.gradient : run.options.reduce) = DType::bf16;
      const ToyOutcome expected = train_gpt(run);
      for (const Strategy strategy : tried_strategies()) {
        run.options.strategy = strategy;
        run.options.shard_group = groups_of_one(strategy);
        EXPECT_EQ(difference(expected, train_gpt(run)), "")
            << to_string(strategy) << (narrow_gradients ? ", bf16 gradients" : ", bf16 wire");
      }
    }
  }
}

/// A decoder, a precision and what else is varied together, so that every pair occurs.
struct Variant {
  std::size_t config;
  DType compute;
  Strategy strategy;
  bool whole = false;  ///< recompute layers whole; otherwise activations and norms, if `again`
  bool again = false;
  Offload offload = Offload::none;
  std::int64_t head_rows = 0;
  float dropout = 0.0F;
  bool packed = false;
  bool masked = false;
};

NamedConfig decoder_of(std::size_t index) {
  const auto configs = decoder_configs(3, 36, 37, 11);
  return index < configs.size() ? configs[index] : NamedConfig{"gpt2", kSmallGPT};
}

std::vector<Variant> variants() {
  using enum Strategy;
  return {
      {0, DType::fp32, zero3, false, true, Offload::none, 5},
      {0, DType::bf16, zero1, true, false, Offload::optimizer},
      {0, DType::fp16, zero2, false, false, Offload::none, 0, 0.2F},
      {1, DType::fp32, zero2, true, false, Offload::none, 5, 0.2F},
      {1, DType::bf16, zero3, false, true, Offload::state},
      {1, DType::fp16, dp, false, false},
      {2, DType::fp32, zero1, false, true, Offload::none, 0, 0.2F},
      {2, DType::bf16, dp, true, false, Offload::none, 5},
      {2, DType::fp16, zero3, false, false, Offload::optimizer},
      {3, DType::fp32, dp, true, false},
      {3, DType::bf16, zero2, false, true, Offload::optimizer, 5, 0.2F},
      {3, DType::fp16, zero1, true, false, Offload::none},
      {3, DType::fp32, zero3, false, true, Offload::state},
      {4, DType::fp32, zero3, true, false, Offload::optimizer, 0, 0.2F},
      {4, DType::bf16, zero2, false, true},
      {5, DType::bf16, zero3, false, true, Offload::none, 5},
      {5, DType::fp32, zero1, true, false, Offload::none, 0, 0.2F},
      {0, DType::bf16, dp, true, false, Offload::none, 0, 0.2F, true, true},
      {1, DType::fp32, zero3, false, true, Offload::none, 5, 0.0F, true, true},
      {2, DType::fp32, zero2, true, false, Offload::optimizer, 0, 0.0F, false, true},
      {3, DType::fp16, zero2, false, true, Offload::none, 0, 0.0F, true, true},
      {4, DType::fp32, zero1, false, true, Offload::none, 0, 0.0F, true, true},
      {5, DType::fp16, zero3, false, false, Offload::none, 0, 0.0F, true, false},
      {6, DType::fp32, zero3, true, false, Offload::none, 5, 0.2F, true, true},
      {6, DType::bf16, zero2, false, true, Offload::state, 0, 0.0F, true, true},
  };
}

class DecoderParity : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Variants, DecoderParity, ::testing::ValuesIn(variants()),
                         [](const auto& test) {
                           return std::string{decoder_of(test.param.config).name} + "_" +
                                  std::string{to_string(test.param.compute)} + "_" +
                                  std::string{to_string(test.param.strategy)};
                         });

TEST_P(DecoderParity, TrainsWithTheBitsOfDDP) {
  const Variant& variant = GetParam();
  GPTRun run;
  run.config = decoder_of(variant.config).config;
  run.ranks = 3;
  run.steps = 6;
  run.gpt = {.head_rows = variant.head_rows,
             .dropout = variant.dropout,
             .packed = variant.packed,
             .masked = variant.masked};
  run.options = {.strategy = Strategy::ddp, .compute = variant.compute};
  const ToyOutcome expected = train_gpt(run);
  EXPECT_EQ(std::ssize(expected.losses), run.steps);
  EXPECT_LT(std::ranges::min(expected.losses), expected.losses.front());
  run.options.strategy = variant.strategy;
  run.options.offload = variant.offload;
  using nn::Recompute;
  if (variant.whole) { run.gpt.recompute = Recompute::block(); }
  if (variant.again) {
    run.gpt.recompute = Recompute::activation(run.config) | Recompute::norms(run.config);
  }
  EXPECT_EQ(difference(expected, train_gpt(run)), "");
}

class GPTThreads : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GPTThreads, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

TEST_P(GPTThreads, ThreeThreadsARankGiveTheBitsOfOneInBf16) {
  GPTRun run;
  run.config = kWide;
  run.gpt = {.recompute = nn::Recompute::every(2)};
  run.options = {.strategy = Strategy::zero3, .compute = DType::bf16};
  run.ranks = GetParam();
  run.steps = 3;
  const ToyOutcome expected = train_gpt(run);
  run.world = {.threads = 3, .testing = {.compute_stream = ComputeStream::worker}};
  EXPECT_EQ(difference(expected, train_gpt(run)), "");
}

TEST_P(GPTThreads, ThreeThreadsARankGiveTheBitsOfOneUnderEveryStrategy) {
  GPTRun run;
  run.config = kWide;
  run.ranks = GetParam();
  run.steps = 3;
  const ToyOutcome expected = train_gpt(run);
  ASSERT_EQ(expected.losses.size(), 3U);
  for (const Strategy strategy : tried_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    for (const ComputeStream stream : {ComputeStream::worker, ComputeStream::caller}) {
      run.world = {.threads = 3, .testing = {.compute_stream = stream}};
      EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
      if (TESSERA_SANITIZED) { break; }
    }
    if (TESSERA_SANITIZED) { continue; }
    run.world = {};
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy) << ", one thread";
  }
}

// A worker runs the compute stream, so only events order it; poison and delays change what is read
// or overwritten too early.
TEST_P(GPTParity, AsynchronousComputePoisonAndDelaysChangeNoBit) {
  for (const int accumulate : {1, 2}) {
    GPTRun run;
    run.options = {.accumulate = accumulate, .accumulate_mode = AccumulateMode::every};
    run.ranks = GetParam();
    run.steps = 5;
    const ToyOutcome expected = train_gpt(run);
    run.world = {
        .testing = {.poison = SlotPoison::nan,
                    .delays = DelayInjection{.seed = 11, .longest = std::chrono::microseconds{500}},
                    .compute_stream = ComputeStream::worker}};
    for (const Strategy strategy : tried_strategies()) {
      for (const int prefetch : {0, 1, 2}) {
        if (prefetch != 1 && strategy != Strategy::zero3) { continue; }
        run.options.strategy = strategy;
        run.options.shard_group = groups_of_one(strategy);
        run.options.prefetch = prefetch;
        EXPECT_EQ(difference(expected, train_gpt(run)), "")
            << to_string(strategy) << " prefetch " << prefetch << " accumulate " << accumulate;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test::gpt_test
