// A GPT on every mesh has the gradients, norms and losses of one rank, and the planned memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "support/decoder_configs.hpp"
#include "support/gpt_rounding.hpp"
#include "support/groups.hpp"
#include "support/mesh_rounding.hpp"
#include "support/mesh_run.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/recompute.hpp"
#include "tessera/pipeline/schedule.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::meshes_test {
namespace {

using ::testing::HasSubstr;

/// The training of one rank with the same global batch; run once.
const MeshOutcome& one_rank(const MeshRun& run) {
  static std::map<std::string, MeshOutcome> all;
  const MeshRun one = on_one_rank(run);
  const std::string norms = one.gpt.norms ? std::string{to_string(*one.gpt.norms)} : "";
  const nn::DecoderConfig& config = one.config;
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", one.options.accumulate, one.steps,
                  one.batch, to_string(one.options.compute), norms, one.gpt.dropout,
                  config.head_size(), config.key_heads(), config.window, config.rotary_base,
                  config.rotary_elems, config.gated(), one.gpt.packed, one.gpt.masked);
  const auto found = all.find(key);
  return found != all.end() ? found->second : all.emplace(key, train_on(one)).first->second;
}

std::string text_of(const MeshRun& run) {
  return fmt::format("{} on {}", test::text_of(run.options),
                     MeshShape{run.options.mesh}.to_string());
}

void expect_planned(const MeshRun& run, const MeshOutcome& outcome) {
  for (int rank = 0; rank < ranks_of(run); ++rank) {
    EXPECT_EQ(difference(planned_on(run, rank), outcome.memory[static_cast<std::size_t>(rank)]), "")
        << text_of(run) << ", rank " << rank;
  }
}

std::int64_t micro_batches_of(const MeshRun& run) {
  return std::int64_t{run.options.accumulate} * data_ranks_of(run);
}

/// Bounds of the effect of the order of sums in fp32: all of a step's are made in another order.
GPTBounds any_order(const MeshRun& run) {
  return between_runs(run.config, micro_batches_of(run) * run.batch * run.config.seq);
}

/// The same, if only sums of gradients over micro-batches are made in another order. Each
/// micro-batch has two parts of a table that is embedding and head. The terms' magnitudes sum up to
/// sqrt(n) times the sum of terms of random signs.
GPTBounds any_order_of_micro_batches(const MeshRun& run) {
  const double terms = 2.0 * static_cast<double>(micro_batches_of(run));
  const double gradient = std::sqrt(terms) * order_difference(2 * micro_batches_of(run));
  return {.loss = gradient, .gradient = gradient, .later_loss = gradient};
}

void expect_same_evaluation_where_data_is_the_same(const MeshRun& run, const MeshOutcome& outcome) {
  for (std::size_t rank = 0; rank < outcome.evaluated.size(); ++rank) {
    const auto same =
        static_cast<std::size_t>(MeshShape{run.options.mesh}.data_index(static_cast<int>(rank)));
    EXPECT_EQ(outcome.evaluated[rank] == outcome.evaluated[0], same == 0) << rank;
  }
}

void expect_as_one_rank(const MeshRun& run, const MeshOutcome& outcome, const GPTBounds& within) {
  const auto& [expected, evaluated, memory] = one_rank(run);
  const FarthestTensor gradient = farthest(expected.first_gradients, outcome.seen.first_gradients);
  EXPECT_LE(gradient.difference, within.gradient) << gradient.name;
  EXPECT_NEAR(outcome.seen.norms[0], expected.norms[0], within.gradient * expected.norms[0]);
  for (std::size_t step = 0; step < outcome.seen.losses.size(); ++step) {
    EXPECT_NEAR(outcome.seen.losses[step], expected.losses[step],
                within.later_loss * expected.losses[0])
        << "step " << step;
  }
  EXPECT_NEAR(outcome.evaluated[0], evaluated[0], within.loss * evaluated[0]);
}

void expect_within_rounding(const MeshRun& run, const MeshOutcome& outcome, std::size_t draws) {
  MeshRun in_fp32 = run;
  in_fp32.options.compute = DType::fp32;
  expect_within_rounding(outcome, one_rank(run), one_rank(in_fp32), draws);
}

void expect_as_one_rank(const MeshRun& run) {
  SCOPED_TRACE(text_of(run));
  const MeshOutcome outcome = train_on(run);
  expect_as_one_rank(run, outcome, any_order(run));
  expect_same_evaluation_where_data_is_the_same(run, outcome);
  expect_planned(run, outcome);
}

/// `draws` is the number of losses, which vary randomly.
void expect_as_one_rank_in_bf16(const MeshRun& run, std::size_t draws) {
  SCOPED_TRACE(text_of(run));
  const MeshOutcome outcome = train_on(run);
  if (run.options.mesh.back().size == 1) {  // without a cut product, the roundings are one rank's
    MeshOutcome first = outcome;
    first.seen.losses.resize(1);
    expect_as_one_rank(run, first, any_order_of_micro_batches(run));
  }
  expect_within_rounding(run, outcome, draws);
  expect_same_evaluation_where_data_is_the_same(run, outcome);
  expect_planned(run, outcome);
}

MeshRun run_on(int pipe, int replicate, int shard, int tensor) {
  MeshRun run;
  run.options.strategy = Strategy::zero3;
  run.options.accumulate = 2;
  run.options.mesh = {
      {"pipe", pipe}, {"replicate", replicate}, {"shard", shard}, {"tensor", tensor}};
  return run;
}

constexpr int kMostRanks = TESSERA_SANITIZED ? 4 : 8;

class OnEveryMesh : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, OnEveryMesh, ::testing::Range(1, 6),
                         [](const auto& test) { return fmt::format("{}", test.param); });

TEST_P(OnEveryMesh, GradientsNormsAndLossesAreThoseOfOneRankAndMemoryIsAsPlanned) {
  const int pipe = GetParam();
  for (int replicate = 1; pipe * replicate <= kMostRanks; ++replicate) {
    for (int shard = 1; pipe * replicate * shard <= kMostRanks; ++shard) {
      for (int tensor = 1; pipe * replicate * shard * tensor <= kMostRanks; ++tensor) {
        expect_as_one_rank(run_on(pipe, replicate, shard, tensor));
      }
    }
  }
}

constexpr int kFifty = TESSERA_SANITIZED ? 5 : 50;  // 50 would take minutes

MeshRun fifty_steps_on(const std::array<int, 4>& mesh) {
  MeshRun run = run_on(mesh[0], mesh[1], mesh[2], mesh[3]);
  run.steps = kFifty;
  run.options.accumulate = 4 / data_ranks_of(run);
  return run;
}

constexpr std::array<std::array<int, 4>, 10> kTenMeshes{{{1, 1, 1, 2},
                                                         {1, 1, 1, 3},
                                                         {2, 1, 1, 1},
                                                         {3, 1, 1, 1},
                                                         {2, 1, 2, 1},
                                                         {1, 2, 1, 2},
                                                         {2, 1, 1, 2},
                                                         {1, 2, 2, 1},
                                                         {2, 1, 2, 2},
                                                         {4, 1, 1, 2}}};

TEST(TenMeshes, GiveTheLossesOfOneRankForFiftySteps) {
  for (const auto& mesh : kTenMeshes) { expect_as_one_rank(fifty_steps_on(mesh)); }
}

// A step's error persists in AdamW's first moment for 1 / (1 - 0.9) = 10 steps, and in the
// parameters: of ten losses, one varies randomly.
TEST(TenMeshes, GiveTheLossesOfOneRankForFiftyStepsInBf16) {
  for (const auto& mesh : kTenMeshes) {
    MeshRun run = fifty_steps_on(mesh);
    run.options.compute = DType::bf16;
    expect_as_one_rank_in_bf16(run, std::max(1, kFifty / 10));
  }
}

// A pipeline adds to a gradient in the order of micro-batches, like one rank. The exception is the
// token table: one rank adds the head's and the embedding's parts alternately, stages each add
// their own.
TEST(PipelineAlone, AddsAsAccumulationOnOneRankDoes) {
  for (const int pipe : {2, 3, 5}) {
    const MeshRun run = run_on(pipe, 1, 1, 1);
    auto actual = train_on(run).seen.first_gradients;
    auto expected = one_rank(run).seen.first_gradients;
    const std::vector<float> table = expected.at("wte.weight");
    actual.erase("wte.weight");
    expected.erase("wte.weight");
    EXPECT_EQ(expected, actual) << pipe;
    EXPECT_EQ(table.size(), 257U * 60U);
  }
}

pipeline::Schedule by_hand(int ranks, int micro_batches) {
  pipeline::Schedule schedule = pipeline::gpipe(ranks, micro_batches);
  schedule.name = "by hand";
  return schedule;
}

pipeline::Schedule two_stages_a_rank(int ranks, int micro_batches) {
  return pipeline::interleaved(ranks, 2, micro_batches);
}

/// Options varied together, so that every pair occurs.
struct Pairing {
  std::array<int, 4> mesh;
  Strategy strategy;
  DType compute = DType::fp32;
  int accumulate = 2;
  nn::DecoderOptions gpt = {};
  Offload offload = Offload::none;
  std::size_t config = 6;  ///< in decoder_configs; 6: kMeshGPT
};

nn::DecoderConfig config_of(std::size_t index) {
  return index == 6 ? kMeshGPT : decoder_configs(5, 60, 257, 16)[index].config;
}

std::vector<Pairing> pairings() {
  using nn::Recompute;
  return {
      {{2, 2, 1, 1}, Strategy::ddp, DType::fp32, 3, {.recompute = Recompute::block()}},
      {{2, 1, 2, 1}, Strategy::zero1, DType::bf16, 2, {.schedule = two_stages_a_rank}},
      {{2, 1, 2, 2},
       Strategy::zero2,
       DType::fp32,
       4,
       {.recompute = Recompute::every(2) | Recompute::layer_norm(),
        .schedule = two_stages_a_rank,
        .sequence_parallel = true}},
      {{1, 1, 2, 3},
       Strategy::zero3,
       DType::bf16,
       1,
       {.recompute = Recompute::gelu() | Recompute::layer_norm(), .sequence_parallel = true}},
      {{1, 2, 1, 2}, Strategy::ddp, DType::bf16, 1, {.head_rows = 5, .sequence_parallel = true}},
      {{1, 1, 2, 4}, Strategy::zero1, DType::fp32, 1, {.recompute = Recompute::block()}},
      {{3, 1, 1, 2},
       Strategy::zero3,
       DType::fp32,
       3,
       {.recompute = Recompute::gelu(), .schedule = by_hand, .sequence_parallel = true}},
      {{4, 1, 2, 1}, Strategy::zero2, DType::bf16, 1, {.head_rows = 7, .schedule = by_hand}},
      {{2, 1, 1, 3},
       Strategy::zero3,
       DType::bf16,
       4,
       {.recompute = Recompute::block(), .schedule = two_stages_a_rank, .tensor_slices = 3}},
      {{2, 2, 2, 1},
       Strategy::zero3,
       DType::fp32,
       2,
       {.norms = DType::fp32, .recompute = Recompute::every(2), .head_rows = 16}},
      {{1, 2, 2, 2},
       Strategy::hybrid,
       DType::fp32,
       1,
       {.recompute = Recompute::block(), .boundaries = nn::Boundaries::host}},
      {{2, 2, 2, 1}, Strategy::hybrid, DType::bf16, 2, {}, Offload::state},
      {{2, 2, 1, 2}, Strategy::hybrid, DType::bf16, 2, {.sequence_parallel = true}},
      {{1, 1, 2, 3}, Strategy::zero3, DType::fp32, 2, {}, Offload::optimizer},
      {{1, 1, 2, 2}, Strategy::zero1, DType::bf16, 1, {}, Offload::optimizer},
      {{2, 1, 1, 2}, Strategy::zero2, DType::fp32, 2, {.sequence_parallel = true}, Offload::state},
      {{2, 1, 1, 3},
       Strategy::zero3,
       DType::fp32,
       2,
       {.recompute = Recompute::swiglu() | Recompute::rms_norm(), .sequence_parallel = true},
       Offload::none,
       0},
      {{1, 1, 2, 2},
       Strategy::zero1,
       DType::bf16,
       2,
       {.recompute = Recompute::block()},
       Offload::none,
       0},
      {{2, 1, 2, 1}, Strategy::zero2, DType::bf16, 2, {.head_rows = 7}, Offload::none, 1},
      {{1, 2, 1, 3},
       Strategy::ddp,
       DType::fp32,
       1,
       {.recompute = Recompute::every(2)},
       Offload::none,
       1},
      {{2, 1, 1, 2},
       Strategy::zero3,
       DType::bf16,
       4,
       {.schedule = two_stages_a_rank, .sequence_parallel = true},
       Offload::none,
       2},
      {{1, 1, 3, 2}, Strategy::zero3, DType::fp32, 1, {.head_rows = 5}, Offload::optimizer, 2},
      {{2, 1, 1, 2},
       Strategy::zero3,
       DType::fp32,
       2,
       {.recompute = Recompute::block(), .sequence_parallel = true},
       Offload::none,
       3},
      {{1, 1, 2, 2}, Strategy::zero2, DType::bf16, 2, {.tensor_slices = 2}, Offload::none, 3},
      {{2, 1, 1, 3},
       Strategy::zero3,
       DType::fp32,
       2,
       {.recompute = Recompute::gelu()},
       Offload::none,
       4},
      {{1, 2, 2, 2},
       Strategy::hybrid,
       DType::fp32,
       1,
       {.sequence_parallel = true},
       Offload::none,
       5},
      {{2, 1, 1, 2},
       Strategy::zero3,
       DType::fp32,
       3,
       {.packed = true, .masked = true, .sequence_parallel = true}},
      {{1, 1, 2, 3},
       Strategy::zero2,
       DType::bf16,
       2,
       {.head_rows = 5, .packed = true, .masked = true},
       Offload::none,
       0},
      {{2, 1, 2, 1},
       Strategy::zero1,
       DType::fp32,
       2,
       {.recompute = Recompute::block(),
        .packed = true,
        .masked = true,
        .schedule = two_stages_a_rank},
       Offload::none,
       1},
      {{1, 2, 2, 1}, Strategy::hybrid, DType::bf16, 1, {.masked = true}, Offload::state},
  };
}

class Paired : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Options, Paired, ::testing::Range(std::size_t{0}, pairings().size()),
                         ::testing::PrintToStringParamName());

TEST_P(Paired, OptionsMatchOneRankAndUseThePlannedMemory) {
  const Pairing pairing = pairings()[GetParam()];
  const auto& [pipe, replicate, shard, tensor] = pairing.mesh;
  MeshRun run = run_on(pipe, replicate, shard, tensor);
  if (pipe * replicate * shard * tensor > kMostRanks) { run.steps = 1; }
  run.options.strategy = pairing.strategy;
  run.options.compute = pairing.compute;
  run.options.accumulate = pairing.accumulate;
  run.options.offload = pairing.offload;
  run.gpt = pairing.gpt;
  run.config = config_of(pairing.config);
  if (pairing.strategy == Strategy::ddp) { std::erase(run.options.mesh, MeshDim{"shard", 1}); }
  if (pairing.compute == DType::fp32) {
    expect_as_one_rank(run);
  } else {
    expect_as_one_rank_in_bf16(run, static_cast<std::size_t>(run.steps) + 1);
  }
}

TEST(DropoutOnMeshes, DropsWhatOneRankDrops) {
  for (const std::size_t config : {std::size_t{6}, std::size_t{0}}) {  // 0: grouped queries
    for (const bool sequence_parallel : {false, true}) {
      MeshRun run = run_on(2, 1, 2, 2);
      run.config = config_of(config);
      run.gpt = {.dropout = 0.2F, .sequence_parallel = sequence_parallel};
      expect_as_one_rank(run);
    }
  }
}

TEST(ZeroBubble, SplitBackwardPassesHaveTheBitsOfWholeOnes) {
  using nn::Recompute;
  struct Case {
    std::array<int, 4> mesh;
    nn::DecoderOptions gpt;
    std::size_t config = 6;
  };
  const std::vector<Case> cases = {
      {{3, 1, 2, 1}, {}},
      {{2, 1, 1, 2}, {.recompute = Recompute::gelu() | Recompute::layer_norm(), .dropout = 0.1F}},
      {{2, 1, 2, 2}, {.recompute = Recompute::every(2), .sequence_parallel = true}},
      {{4, 1, 1, 2},
       {.recompute = Recompute::layer_norm(), .dropout = 0.2F, .sequence_parallel = true}},
      {{2, 1, 1, 2}, {.recompute = Recompute::swiglu() | Recompute::rms_norm()}, 3},
      {{2, 1, 1, 3}, {.sequence_parallel = true}, 0},
      {{3, 1, 1, 1}, {.recompute = Recompute::gelu()}, 4},
      {{3, 1, 1, 1}, {.recompute = Recompute::every(2)}, 5},
      {{2, 1, 1, 2}, {.packed = true, .masked = true}, 3},
  };
  for (const DType compute : {DType::fp32, DType::bf16}) {
    for (const auto& [mesh, gpt, config] : cases) {
      MeshRun run = run_on(mesh[0], mesh[1], mesh[2], mesh[3]);
      run.options.compute = compute;
      run.options.accumulate = 5;
      run.options.checks = Checks::strict;
      run.gpt = gpt;
      run.config = config_of(config);
      const ToyOutcome whole = train_on(run).seen;
      run.gpt.schedule = pipeline::zero_bubble;
      const MeshOutcome divided = train_on(run);
      EXPECT_EQ(difference(whole, divided.seen), "") << text_of(run);
      expect_planned(run, divided);
    }
  }
}

// With a worker only events order the work; poison and delays change what is read or overwritten
// too early.
TEST(MeshesOnWorkers, PoisonAndDelaysChangeNoBit) {
  for (const auto schedule :
       {pipeline::one_forward_one_backward, pipeline::zero_bubble, two_stages_a_rank}) {
    MeshRun run = run_on(2, 1, 2, 2);
    run.gpt = {.recompute = nn::Recompute::every(2),
               .schedule = schedule,
               .sequence_parallel = true,
               .tensor_slices = 2};
    const ToyOutcome expected = train_on(run).seen;
    run.world = {
        .testing = {.poison = SlotPoison::nan,
                    .delays = DelayInjection{.seed = 7, .longest = std::chrono::microseconds{300}},
                    .compute_stream = ComputeStream::worker}};
    EXPECT_EQ(difference(expected, train_on(run).seen), "");
  }
}

// A rank of 1F1B holds activations of at most as many micro-batches as the pipeline has stages.
TEST(OneForwardOneBackward, HoldsActivationsByStagesAndNotByMicroBatches) {
  const auto bytes = [](int rank, int micro_batches, const nn::DecoderOptions& gpt) {
    std::size_t sum = 0;
    simulate_rank({.rank = rank, .ranks = 4}, [&](World& world) {
      const ModelOptions options{.strategy = Strategy::zero3,
                                 .accumulate = micro_batches,
                                 .mesh = {{"pipe", 4}, {"shard", 1}}};
      const auto needed = nn::Decoder::bytes_needed(kMeshGPT, gpt, 1, world, options);
      sum = needed.activations + needed.workspace;
    });
    return sum;
  };
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(bytes(rank, 8, {}), bytes(rank, 32, {})) << rank;
    EXPECT_LT(bytes(rank, 8, {.schedule = pipeline::gpipe}),
              bytes(rank, 32, {.schedule = pipeline::gpipe}))
        << rank;
  }
}

/// The error of a step of this training; empty if there is none.
std::string refusal(const MeshRun& run, const std::function<void(Sharded<nn::Decoder>&)>& act) {
  try {
    run_ranks(ranks_of(run), [&](World& world) {
      auto gpt = shard(nn::Decoder{run.config, run.gpt}, world, run.options);
      gpt.materialize(1);
      act(gpt);
    });
  } catch (const Error& error) { return error.what(); }
  return {};
}

TEST(MeshRefusals, NameWhatToDoInstead) {
  const std::vector<std::int32_t> tokens(16);
  const auto nothing = [](Sharded<nn::Decoder>&) {};
  MeshRun run = run_on(2, 1, 1, 1);
  EXPECT_THAT(refusal(run, [&](auto& gpt) { gpt.forward_backward(tokens, tokens); }),
              HasSubstr("Decoder::forward: the mesh has a dimension `pipe`; call run instead"));
  run.gpt = {.boundaries = nn::Boundaries::host};
  EXPECT_THAT(refusal(run, nothing), HasSubstr("Boundaries::host on a mesh with `pipe`"));
  run.gpt = {.gather_logits = nn::GatherLogits::on_rank0};
  EXPECT_THAT(refusal(run, nothing), HasSubstr("GatherLogits::on_rank0 on a mesh with `pipe`"));
  run.gpt = {.schedule = [](int ranks, int) { return pipeline::gpipe(ranks, 5); }};
  EXPECT_THAT(refusal(run, nothing),
              HasSubstr("schedule gpipe has 5 micro-batches on 2 ranks, but the model has 2"));
  run.gpt = {.schedule = [](int ranks, int m) { return pipeline::interleaved(ranks, 3, m); }};
  EXPECT_THAT(refusal(run, nothing), HasSubstr("6 stages of a pipeline for 5 layers"));
  run = run_on(2, 1, 1, 1);
  run.options.offload = Offload::optimizer;
  EXPECT_THAT(
      refusal(run, nothing),
      HasSubstr("`offload` optimizer moves its gradients to the host before those of the places "
                "along pipe that share it"));
  run = run_on(1, 1, 1, 4);
  run.config = config_of(0);
  EXPECT_THAT(refusal(run, nothing),
              HasSubstr("4 ranks along tensor for 3 heads of keys and values: each rank needs at "
                        "least one; give at most 3 ranks along tensor"));
  run = run_on(1, 1, 2, 1);
  run.gpt = {.sequence_parallel = true};
  EXPECT_THAT(refusal(run, nothing), HasSubstr("sequence parallelism needs a mesh"));
}

}  // namespace
}  // namespace tessera::test::meshes_test
