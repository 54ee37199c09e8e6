// A layer that is recomputed whole keeps only its input, recomputed outputs take no memory, and
// nothing else changes.
#include "tessera/nn/recompute.hpp"

#include <gmock/gmock.h>

#include <map>

#include "nn/decoder_course.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::recompute_test {
namespace {

using test::CourseOptions;
using test::kCourseConfig;

TEST(Recompute, NamesTheLayersItAppliesTo) {
  const auto layers = [](const Recompute& recompute) {
    std::vector<int> all;
    for (int layer = 0; layer < 7; ++layer) {
      if (recompute.applies_to(layer)) { all.push_back(layer); }
    }
    return all;
  };
  EXPECT_EQ(layers(Recompute::none()), std::vector<int>{});
  EXPECT_EQ(layers(Recompute::block()), (std::vector{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(layers(Recompute::every(3)), (std::vector{0, 3, 6}));
  EXPECT_EQ(layers(Recompute::chosen([](auto layer) { return layer > 4; })), (std::vector{5, 6}));
  EXPECT_EQ(layers(Recompute::gelu() | Recompute::every(3)), (std::vector{0, 3, 6}));
  EXPECT_EQ(Recompute::every(3).describe(), "every:3");
  EXPECT_EQ(Recompute::block().describe(), "block");
  EXPECT_EQ(Recompute().describe(), "none");
  EXPECT_THROW(static_cast<void>(Recompute::every(0)), ContractError);
  EXPECT_THROW(static_cast<void>(Recompute::chosen(nullptr)), ContractError);
}

TEST(Recompute, JoinsOutputsWithWholeLayersThatNeedNeither) {
  const Recompute both = Recompute::gelu() | Recompute::layer_norm();
  EXPECT_TRUE(both.activation_of(0) && both.norms_of(0) && !both.applies_to(0));
  const Recompute mixed = Recompute::every(2) | Recompute::layer_norm();
  EXPECT_TRUE(mixed.applies_to(0) && !mixed.norms_of(0));
  EXPECT_TRUE(!mixed.applies_to(1) && mixed.norms_of(1) && !mixed.activation_of(1));
  EXPECT_EQ(both.describe(), "gelu,layer-norm");
  EXPECT_EQ((Recompute::gelu() | Recompute::every(2)).describe(), "every:2,gelu");
  EXPECT_THROW(static_cast<void>(Recompute::block() | Recompute::every(2)), ContractError);
}

TEST(Recompute, OfAPartThatTheModelLacksIsRefused) {
  const DecoderConfig gpt;
  DecoderConfig llama;
  llama.norm = NormKind::rms_norm;
  llama.mlp = MLPKind::swiglu;
  const auto refuses = [](const DecoderConfig& config, const Recompute& recompute,
                          const char* text) {
    EXPECT_THAT([&] { Decoder(config, {.recompute = recompute}); },
                testing::ThrowsMessage<ConfigError>(testing::HasSubstr(text)));
  };
  refuses(gpt, Recompute::swiglu(),
          "recompute swiglu: the layers of this model have none; give gelu");
  refuses(gpt, Recompute::rms_norm(), "recompute rms-norm: the layers of this model have none");
  refuses(llama, Recompute::gelu(), "recompute gelu: the layers of this model have none");
  refuses(llama, Recompute::layer_norm(), "give rms-norm");
  const Recompute both = Recompute::swiglu() | Recompute::rms_norm();
  EXPECT_NO_THROW(Decoder(llama, {.recompute = both}));
  EXPECT_EQ(both.describe(), "swiglu,rms-norm");
  EXPECT_TRUE(both.activation_of(0) && both.norms_of(0));
}

std::vector<Recompute> choices() {
  return {Recompute::block(),
          Recompute::every(2),
          Recompute::chosen([](std::int64_t layer) { return layer == 1; }),
          Recompute::gelu() | Recompute::layer_norm(),
          Recompute::every(2) | Recompute::layer_norm(),
          Recompute::chosen([](std::int64_t layer) { return layer == 1; }) | Recompute::gelu()};
}

class RecomputeIn : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, RecomputeIn,
                         testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(RecomputeIn, ChangesNoBitUnderAnyStrategy) {
  for (const Strategy strategy : all_strategies()) {
    CourseOptions options{.model = {.strategy = strategy, .compute = GetParam(), .accumulate = 2},
                          .ranks = 2};
    const test::Course expected = train_course(options);
    for (const Recompute& recompute : choices()) {
      options.gpt.recompute = recompute;
      EXPECT_EQ(train_course(options), expected)
          << to_string(strategy) << ", " << recompute.describe();
    }
  }
}

// A chunked head differs slightly from the whole one; its bits are the same everywhere.
TEST_P(RecomputeIn, ChangesNoBitOfAHeadInChunksUnderAnyStrategy) {
  CourseOptions options{.model = {.compute = GetParam(), .accumulate = 2}, .ranks = 2};
  options.model.accumulate_mode = AccumulateMode::every;
  const test::Course whole = train_course(options);
  options.gpt.head_rows = 4;  // of 11 rows
  const test::Course expected = train_course(options);
  // The head's gradient, an fp32 sum over rows, is added in another order. Then, in 16 bits, a
  // weight whose master lies at a boundary may be rounded the other way: by 2 u of it, and so the
  // loss.
  const test::GPTBounds within = test::course_bounds(options);
  EXPECT_NEAR(expected.losses[0] / whole.losses[0], 1.0, within.loss);
  EXPECT_NEAR(expected.norms[0] / whole.norms[0], 1.0, within.gradient);
  const double later =
      GetParam() == DType::fp32 ? within.later_loss : 2 * test::unit_roundoff(GetParam());
  for (std::size_t step = 1; step < whole.losses.size(); ++step) {
    EXPECT_NEAR(expected.losses[step], whole.losses[step], later * whole.losses[0]);
    EXPECT_NEAR(expected.norms[step], whole.norms[step], later * whole.norms[0]);
  }
  options.gpt.recompute = Recompute::every(2) | Recompute::gelu() | Recompute::layer_norm();
  for (const Strategy strategy : all_strategies()) {
    options.model.strategy = strategy;
    EXPECT_EQ(train_course(options), expected) << to_string(strategy);
  }
}

// The masks are generated again, not kept.
TEST_P(RecomputeIn, ReplaysDropoutToTheBit) {
  for (const Strategy strategy : all_strategies()) {
    CourseOptions options{.gpt = {.dropout = 0.2F},
                          .model = {.strategy = strategy, .compute = GetParam()},
                          .ranks = 2};
    const test::Course expected = train_course(options);
    for (const Recompute& recompute :
         {Recompute::block(), Recompute::gelu() | Recompute::layer_norm()}) {
      options.gpt.recompute = recompute;
      EXPECT_EQ(train_course(options), expected) << to_string(strategy) << recompute.describe();
    }
  }
}

// Late, poisoned, and ordered only by events.
TEST(RecomputeAsynchronously, ChangesNoBit) {
  CourseOptions options{.model = {.strategy = Strategy::zero3}, .ranks = 3, .global_batch = 6};
  const test::Course expected = train_course(options);
  options.gpt.recompute = Recompute::every(2) | Recompute::gelu() | Recompute::layer_norm();
  options.world = {
      .testing = {.poison = SlotPoison::nan,
                  .delays = DelayInjection{.seed = 5, .longest = std::chrono::microseconds{300}},
                  .compute_stream = ComputeStream::worker}};
  EXPECT_EQ(train_course(options), expected);
  options.model.checks = Checks::memory;  // this must not read what kernels have yet to write
  EXPECT_EQ(train_course(options), expected);
}

std::size_t activation_bytes(const DecoderConfig& config, const Recompute& recompute,
                             DType compute) {
  std::size_t bytes = 0;
  simulate_rank({.rank = 0, .ranks = 1}, [&](World& world) {
    const DecoderBytes kept = Decoder::bytes_needed(config, {}, 2, world, {.compute = compute});
    const DecoderBytes needed =
        Decoder::bytes_needed(config, {.recompute = recompute}, 2, world, {.compute = compute});
    EXPECT_EQ(needed.workspace, kept.workspace);
    bytes = needed.activations;
  });
  return bytes;
}

// 2 s b h bytes per layer in bf16, plus 15 hidden, statistics and log-sum-exps of one layer.
TEST(RecomputeMemory, IsOneInputPerLayerPlusOneLayersActivations) {
  const std::size_t rows = 2 * 32;
  const auto expected = [&](std::size_t layers, std::size_t size) {
    const std::size_t outside = (64 + 64 + 256) * size + 2 * 4 + 2 * 4;  // head, norm, tokens
    return rows * (layers * 64 * size + 15 * 64 * size + (4 + 4) * 4 + outside);
  };
  for (const std::size_t layers : {1, 3, 12}) {
    const DecoderConfig config{.layers = static_cast<std::int64_t>(layers),
                               .hidden = 64,
                               .heads = 4,
                               .vocab = 256,
                               .seq = 32};
    EXPECT_EQ(activation_bytes(config, Recompute::block(), DType::fp32), expected(layers, 4));
    EXPECT_EQ(activation_bytes(config, Recompute::block(), DType::bf16), expected(layers, 2));
  }
}

// They are recomputed in the gradients' memory, which does not grow.
TEST(RecomputeMemory, OutputsOfGeluAndNormsTakeNone) {
  const DecoderConfig config{.layers = 5, .hidden = 64, .heads = 4, .vocab = 256, .seq = 32};
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const std::size_t values = 2UL * 32 * 64 * size_of(compute);
    const std::size_t all = activation_bytes(config, Recompute::none(), compute);
    const auto saved = [&](const Recompute& recompute) {
      return (all - activation_bytes(config, recompute, compute)) / values;
    };
    EXPECT_EQ(saved(Recompute::gelu()), 5 * 4U);
    EXPECT_EQ(saved(Recompute::layer_norm()), 5 * 2U);
    EXPECT_EQ(saved(Recompute::gelu() | Recompute::layer_norm()), 5 * 6U);
    EXPECT_EQ(saved(Recompute::every(2) | Recompute::gelu()), saved(Recompute::every(2)) + 2 * 4UL);
  }
}

TEST(RecomputeMemory, OfEverySecondLayerIsHalfwayThere) {
  const DecoderConfig config{.layers = 8, .hidden = 64, .heads = 4, .vocab = 256, .seq = 32};
  const auto bytes = [&](const Recompute& recompute) {
    return activation_bytes(config, recompute, DType::fp32);
  };
  const std::size_t layer = bytes(Recompute::none()) / 8;
  EXPECT_EQ(bytes(Recompute::every(8)), bytes(Recompute::none()));  // one layer: nothing to share
  const std::size_t saved = (bytes(Recompute::none()) - bytes(Recompute::block())) / 7;
  EXPECT_LT(saved, layer);
  EXPECT_EQ(bytes(Recompute::none()) - bytes(Recompute::every(2)), 3 * saved);
}

void step_on(World& world, const CourseOptions& options, MemoryReport& report) {
  auto gpt = shard(Decoder(options.config, options.gpt), world, options.model);
  gpt.materialize(3);
  gpt.optimize_with(AdamW{});
  course_step(gpt, world, options, 0);
  course_step(gpt, world, options, 1);
  if (world.rank() == 0) { report = world.memory().report(); }
}

TEST(RecomputeMemory, PlannedMemoryIsMeasuredMemory) {
  for (const Strategy strategy : all_strategies()) {
    for (const Recompute& recompute : choices()) {
      const std::int64_t head_rows = recompute.applies_to(0) ? 0 : 4;
      const CourseOptions options{
          .gpt = {.recompute = recompute, .head_rows = head_rows, .dropout = 0.1F},
          .model = {.strategy = strategy},
          .ranks = 2};
      MemoryReport measured;
      run_ranks(2, [&](World& world) { step_on(world, options, measured); });
      MemoryReport planned;
      simulate_rank({.rank = 0, .ranks = 2},
                    [&](World& world) { step_on(world, options, planned); });
      EXPECT_EQ(planned.peak_bytes, measured.peak_bytes) << to_string(strategy);
      EXPECT_EQ(planned.at_peak, measured.at_peak) << to_string(strategy);
      EXPECT_EQ(planned.most_in_use_bytes, measured.most_in_use_bytes) << to_string(strategy);
      EXPECT_EQ(planned.by_phase, measured.by_phase) << to_string(strategy);
      EXPECT_EQ(planned.allocations, measured.allocations) << to_string(strategy);
    }
  }
}

std::vector<trace::Record> records_of_a_step(const CourseOptions& options) {
  std::vector<trace::Record> records;
  run_ranks(options.ranks,
            [&](World& world) {
              auto gpt = shard(Decoder(options.config, options.gpt), world, options.model);
              gpt.materialize(3);
              gpt.optimize_with(AdamW{});
              course_step(gpt, world, options, 0);
              world.recorder()->clear();
              course_step(gpt, world, options, 1);
              if (world.rank() == 0) { records = world.recorder()->records(); }
            },
            {.trace = true});
  return records;
}

// Under zero3 the backward scope's gather also serves the recomputation.
TEST(RecomputeSchedule, NeedsNoExtraGather) {
  CourseOptions options{.model = {.strategy = Strategy::zero3}, .ranks = 2};
  const auto issues = [&] {
    std::vector<std::string> all;
    for (const trace::Record& record : records_of_a_step(options)) {
      if (record.kind == trace::Kind::issue) { all.push_back(record.what + " " + record.unit); }
    }
    return all;
  };
  const std::vector<std::string> kept = issues();
  options.gpt.recompute = Recompute::block();
  EXPECT_GE(std::ranges::count(kept, "gather h.1"), 2);
  EXPECT_EQ(issues(), kept);
}

// In backward the activations of every layer but the last are used again; the last layer's are
// still in memory.
TEST(RecomputeSchedule, SkipsTheLayerThatIsStillInMemory) {
  const CourseOptions options{.gpt = {.recompute = Recompute::block()}};
  std::map<std::string, int> again;
  for (const trace::Record& record : records_of_a_step(options)) {
    const bool used = record.kind == trace::Kind::use && record.what == "activations";
    if (used && record.phase == "backward") { ++again[record.unit]; }
  }
  EXPECT_EQ(again, (std::map<std::string, int>{{"h.0", 1}, {"h.1", 1}}));
}

}  // namespace
}  // namespace tessera::nn::recompute_test
