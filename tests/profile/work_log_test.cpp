// A simulated rank logs the same work as a real one, and as much as the formulas give.
#include "tessera/trace/work_log.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/base/error.hpp"
#include "tessera/kernels/kernels.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::work_log_test {
namespace {

using trace::WorkEntry;
using trace::WorkLog;

constexpr std::int64_t kBatch = 3;
const nn::DecoderConfig kModel{.layers = 2, .hidden = 16, .heads = 2, .vocab = 11, .seq = 8};

WorldOptions logged() {
  WorldOptions options;
  options.log_work = true;
  return options;
}

/// The second step's entries of a GPT.
WorkLog step_of(World& world, const ModelOptions& options) {
  auto gpt = shard(nn::Decoder(kModel), world, options);
  gpt.materialize(1);
  gpt.optimize_with(AdamW{}, {});
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(kBatch * kModel.seq), 1);
  for (int step = 0; step < 2; ++step) {
    if (step == 1) {
      WorkLog& log = *world.work_log();
      log.end_step();
    }
    for (int micro = 0; micro < options.accumulate; ++micro) {
      gpt.forward_backward(tokens, tokens);
    }
    gpt.step();
  }
  return *world.work_log();
}

WorkLog simulated(int ranks, const ModelOptions& options) {
  WorkLog log;
  simulate_rank(
      {.rank = 0, .ranks = ranks, .backend = {}},
      [&](World& world) { log = step_of(world, options); }, logged());
  return log;
}

/// Entries after the first step.
std::vector<WorkEntry> second_step(const WorkLog& log) {
  const auto& all = log.entries();
  const auto end = std::find_if(all.begin(), all.end(), [](const WorkEntry& entry) {
    return entry.kind == WorkEntry::Kind::step;
  });
  return {end == all.end() ? all.begin() : end + 1, all.end()};
}

std::vector<trace::KernelWork> kernels_of(const WorkLog& log) {
  std::vector<trace::KernelWork> kernels;
  for (const WorkEntry& entry : second_step(log)) {
    if (entry.kind == WorkEntry::Kind::kernel) { kernels.push_back(log.kernels()[entry.index]); }
  }
  return kernels;
}

double flops_of(const std::vector<trace::KernelWork>& kernels, std::string_view prefix) {
  double flops = 0;
  for (const auto& kernel : kernels) {
    flops += kernel.name.starts_with(prefix) ? kernel.flops : 0;
  }
  return flops;
}

TEST(WorkLog, OfAGptHasSixFlopsAWeightAndTokenAndAttention) {
  const auto kernels = kernels_of(simulated(1, {.strategy = Strategy::ddp}));
  const std::int64_t tokens = kBatch * kModel.seq;
  const std::int64_t h = kModel.hidden;
  const std::int64_t weights = kModel.layers * 12 * h * h + kModel.vocab * h;
  EXPECT_DOUBLE_EQ(flops_of(kernels, "matmul"), static_cast<double>(6 * weights * tokens));
  // Two products of unmasked scores in forward, five in backward.
  const std::int64_t scores = kBatch * kModel.seq * (kModel.seq + 1) / 2;
  EXPECT_DOUBLE_EQ(flops_of(kernels, "attention"),
                   static_cast<double>(7 * 2 * kModel.layers * scores * h));
}

// Bytes that each kernel reads and writes, and its operations, counted by hand.
TEST(WorkLog, BytesAndOperationsOfAKernelAreThoseOfItsArrays) {
  struct Case {
    const char* name;
    std::function<void(void* at, Stream)> call;
    double bytes;
    double flops;
  };
  constexpr DType kHalf = DType::bf16;
  const auto half = [](void* at) { return Values{at, kHalf}; };
  constexpr kernels::AttentionShape kWindow{1, 5, 4, 8, 2, 3};
  const Case cases[] = {
      {"accumulate",
       [&](void* at, Stream s) { kernels::accumulate(Values{at, DType::fp32}, half(at), 32, s); },
       32 * (4 + 4 + 2), 32},
      {"scale", [&](void* at, Stream s) { kernels::scale(half(at), 0.5F, 32, s); }, 32 * (2 + 2),
       32},
      {"cast", [](void* at, Stream s) { kernels::cast({at, 32, DType::fp32}, {at, 32, kHalf}, s); },
       32 * (4 + 2), 0},
      {"add_bias", [&](void* at, Stream s) { kernels::add_bias(half(at), half(at), 4, 8, s); },
       32 * (2 + 2), 32},
      {"bias_gradient",
       [&](void* at, Stream s) { kernels::bias_gradient(half(at), half(at), 4, 8, s); }, 32 * 2,
       32},
      {"cross_entropy_statistics",
       [&](void* at, Stream s) {
         kernels::vocab_statistics({.logits = half(at),
                                    .targets = static_cast<std::int32_t*>(at),
                                    .statistics = static_cast<float*>(at),
                                    .rows = 4,
                                    .classes = 8,
                                    .first_class = 0},
                                   s);
       },
       32 * 2, 3 * 32},
      {"cross_entropy_parts",
       [&](void* at, Stream s) {
         kernels::vocab_cross_entropy({.logits = half(at),
                                       .targets = static_cast<std::int32_t*>(at),
                                       .statistics = static_cast<float*>(at),
                                       .parts = 2,
                                       .loss = static_cast<double*>(at),
                                       .rows = 4,
                                       .classes = 8,
                                       .first_class = 0,
                                       .gradient_scale = 1.0F,
                                       .loss_scale = 1.0},
                                      s);
       },
       32 * (2 + 2), 3 * 32},
      {"matmul",
       [](void* at, Stream s) {
         kernels::matmul({.a = {at, DType::fp32},
                          .b = {at, DType::fp32},
                          .c = {at, DType::fp32},
                          .m = 2,
                          .n = 3,
                          .k = 5,
                          .write = kernels::Write::add},
                         s);
       },
       4 * (2 * 5 + 5 * 3 + 2 * 2 * 3), 2 * 2 * 3 * 5},
      // Rows of 4 query heads and 2 key heads of 8 elements; 1 + 2 + 3 + 3 + 3 scores a query head.
      {"attention_forward with a window",
       [&](void* at, Stream s) {
         kernels::attention_forward({.qkv = half(at),
                                     .y = half(at),
                                     .log_sum_exp = static_cast<float*>(at),
                                     .workspace = static_cast<float*>(at),
                                     .shape = kWindow},
                                    s);
       },
       2 * (8 * 5 * 8 + 4 * 5 * 8), 2 * 2 * 12 * 4 * 8},
      {"attention_backward with a window",
       [&](void* at, Stream s) {
         kernels::attention_backward({.qkv = half(at),
                                      .y = half(at),
                                      .log_sum_exp = static_cast<float*>(at),
                                      .dy = half(at),
                                      .dqkv = half(at),
                                      .workspace = static_cast<float*>(at),
                                      .shape = kWindow},
                                     s);
       },
       2 * 2 * (8 * 5 * 8 + 4 * 5 * 8), 2 * 5 * 12 * 4 * 8},
      {"rotary_forward of some values",
       [&](void* at, Stream s) {
         float* const tables = static_cast<float*>(at);
         kernels::rotary_forward({.x = half(at),
                                  .cosines = tables,
                                  .sines = tables,
                                  .batch = 1,
                                  .seq = 2,
                                  .heads = 4,
                                  .head_size = 6,
                                  .rotated = 4},
                                 s);
       },
       32 * (2 + 2), 3 * 32},
      // Of rows of 4 heads of 8 elements, the first 2 heads are rotated.
      {"rotary_backward of heads within rows",
       [&](void* at, Stream s) {
         kernels::rotary_backward({.x = half(at),
                                   .cosines = static_cast<float*>(at),
                                   .sines = static_cast<float*>(at),
                                   .batch = 1,
                                   .seq = 2,
                                   .heads = 2,
                                   .head_size = 8,
                                   .row_elems = 32},
                                  s);
       },
       32 * (2 + 2), 3 * 32},
      {"gelu_backward of the tanh form",
       [&](void* at, Stream s) { kernels::gelu_backward(half(at), half(at), half(at), 32, s); },
       32 * (2 + 2 + 2), 14 * 32},
      {"gelu_backward of the exact form",
       [&](void* at, Stream s) {
         kernels::gelu_backward(half(at), half(at), half(at), 32, s, kernels::GELU::exact);
       },
       32 * (2 + 2 + 2), 11 * 32},
      {"glu_forward with GELU",
       [&](void* at, Stream s) {
         kernels::glu_forward({half(at), half(at), half(at), 4, 8, 0, kernels::Gate::gelu_tanh}, s);
       },
       32 * (2 + 2 + 2), 9 * 32},
      {"gelu_forward of the exact form",
       [&](void* at, Stream s) {
         kernels::gelu_forward(half(at), half(at), 32, s, kernels::GELU::exact);
       },
       32 * (2 + 2), 5 * 32},
      {"glu_forward",
       [&](void* at, Stream s) {
         kernels::glu_forward({half(at), half(at), half(at), 4, 8, 16}, s);
       },
       32 * (2 + 2 + 2), 5 * 32},
      {"glu_backward",
       [&](void* at, Stream s) {
         kernels::glu_backward({half(at), half(at), half(at), half(at), half(at), 4, 8}, s);
       },
       32 * 5 * 2, 11 * 32},
      {"glu_backward with GELU",
       [&](void* at, Stream s) {
         kernels::glu_backward(
             {half(at), half(at), half(at), half(at), half(at), 4, 8, 0, kernels::Gate::gelu_tanh},
             s);
       },
       32 * 5 * 2, 17 * 32},
      // Rows of 4 heads of 8 elements, of which the first 2 are normed.
      {"rms_norm_forward of heads in place",
       [&](void* at, Stream s) {
         kernels::rms_norm_forward({.x = half(at),
                                    .weight = half(at),
                                    .y = half(at),
                                    .inverse_rms = static_cast<float*>(at),
                                    .rows = 4,
                                    .columns = 8,
                                    .group = 2,
                                    .x_group_elems = 32,
                                    .y_group_elems = 32},
                                   s);
       },
       32 * (2 + 2), 4 * 32},
      {"rms_norm_backward added to dx",
       [&](void* at, Stream s) {
         kernels::rms_norm_backward({.x = half(at),
                                     .weight = half(at),
                                     .inverse_rms = static_cast<float*>(at),
                                     .dy = half(at),
                                     .dx = half(at),
                                     .dweight = half(at),
                                     .rows = 4,
                                     .columns = 8},
                                    s);
       },
       32 * 4 * 2, 11 * 32},
      // Two blocks of one group: their codes, magnitudes and scales.
      {"nf4_quantise",
       [&](void* at, Stream s) {
         kernels::nf4_quantise({.values = half(at),
                                .codes = static_cast<std::uint8_t*>(at),
                                .absmax = static_cast<float*>(at),
                                .elems = 65},
                               s);
       },
       65 * 2 + 33 + 2 * 4, 65},
      {"nf4_quantise_absmax",
       [](void* at, Stream s) {
         kernels::nf4_quantise_absmax({.absmax = static_cast<float*>(at),
                                       .offset = 1.0F,
                                       .codes = static_cast<std::uint8_t*>(at),
                                       .scales = static_cast<float*>(at),
                                       .blocks = 257},
                                      s);
       },
       257 * (4 + 1) + 2 * 4, 2 * 257},
      {"nf4_dequantise",
       [&](void* at, Stream s) {
         const auto* const codes = static_cast<std::uint8_t*>(at);
         kernels::nf4_dequantise(
             {.from = {codes, codes, static_cast<float*>(at), 1.0F}, .to = half(at), .elems = 65},
             s);
       },
       65 * 2 + 33 + 2 + 4, 65},
      {"int8_quantise",
       [&](void* at, Stream s) {
         kernels::int8_quantise({.values = half(at),
                                 .codes = static_cast<std::int8_t*>(at),
                                 .scales = static_cast<float*>(at),
                                 .elems = 257},
                                s);
       },
       257 * (2 + 1) + 2 * 4, 257},
      {"int8_dequantise",
       [&](void* at, Stream s) {
         kernels::int8_dequantise({.from = {static_cast<std::int8_t*>(at), static_cast<float*>(at)},
                                   .to = half(at),
                                   .elems = 257},
                                  s);
       },
       257 * (2 + 1) + 2 * 4, 257},
      {"rms_norm_backward into dx",
       [&](void* at, Stream s) {
         kernels::rms_norm_backward({.x = half(at),
                                     .weight = half(at),
                                     .inverse_rms = static_cast<float*>(at),
                                     .dy = half(at),
                                     .dx = half(at),
                                     .dweight = half(at),
                                     .rows = 4,
                                     .columns = 8,
                                     .dx_write = kernels::Write::overwrite},
                                    s);
       },
       32 * (2 + 2 + 2), 10 * 32},
      {"matmul with a residual",
       [](void* at, Stream s) {
         const Values x{at, DType::fp32};
         kernels::matmul({.a = x, .b = x, .c = x, .m = 2, .n = 3, .k = 5, .residual = x.at(64)}, s);
       },
       4 * (2 * 5 + 5 * 3 + 2 * 2 * 3), 2 * 2 * 3 * 5},
  };
  for (const Case& one : cases) {
    simulate_rank(
        {.rank = 0, .ranks = 1, .backend = {}},
        [&](World& world) {
          const Buffer memory = world.allocate(Category::workspace, 4096, "arrays");
          one.call(memory.data(), world.compute_stream());
          ASSERT_EQ(world.work_log()->kernels().size(), 1U) << one.name;
          const trace::KernelWork& work = world.work_log()->kernels().front();
          EXPECT_EQ(work.bytes, one.bytes) << one.name;
          EXPECT_EQ(work.flops, one.flops) << one.name;
        },
        logged());
  }
}

// cuDNN computes plain attention alone: the others have rates, and so names, of their own.
TEST(WorkLog, NamesVariantsOfAttention) {
  const auto name_of = [](const kernels::AttentionShape& shape) {
    std::string name;
    simulate_rank(
        {.rank = 0, .ranks = 1, .backend = {}},
        [&](World& world) {
          const Buffer memory = world.allocate(Category::workspace, 4096, "arrays");
          const Values half{memory.data(), DType::bf16};
          auto* const numbers = static_cast<float*>(memory.data());
          kernels::attention_forward({.qkv = half,
                                      .y = half,
                                      .log_sum_exp = numbers,
                                      .workspace = numbers,
                                      .shape = shape},
                                     world.compute_stream());
          name = world.work_log()->kernels().at(0).name;
        },
        logged());
    return name;
  };
  EXPECT_EQ(name_of({1, 5, 4, 8}), "attention_forward");
  EXPECT_EQ(name_of({1, 5, 4, 8, 4, 5}), "attention_forward");
  EXPECT_EQ(name_of({1, 5, 4, 8, 2}), "attention_forward_grouped");
  EXPECT_EQ(name_of({1, 5, 4, 8, 0, 3}), "attention_forward_window");
  EXPECT_EQ(name_of({1, 5, 4, 8, 2, 3}), "attention_forward_grouped_window");
}

/// A user's own rule, whose weights the library rounds.
CustomOptimizer halving() {
  return {.name = "halving", .states = 0, .update = [](const ShardUpdate&) {}};
}

TEST(WorkLog, WeightsAreReadAndParametersWrittenWhereTheyAreRounded) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    WorkLog log;
    simulate_rank(
        {.rank = 0, .ranks = 1, .backend = {}},
        [&](World& world) {
          ShardedModel model{world, {.strategy = Strategy::ddp, .compute = compute}};
          const Unit unit = model.add_unit("fc", {{"weight", {64, 8}}});
          model.materialize(init::constant(1));
          model.optimize_with(halving());
          (void)model.forward(unit);
          (void)model.backward(unit);
          model.step();
          log = *world.work_log();
        },
        logged());
    double bytes = 0;
    for (const trace::KernelWork& kernel : log.kernels()) {
      if (kernel.name == "round_weights") { bytes += kernel.bytes; }
    }
    EXPECT_DOUBLE_EQ(bytes, compute == DType::bf16 ? 512 * (4 + 2) : 0);
  }
}

TEST(WorkLog, CountsWhatIsComputedAgainAndEveryMicroBatch) {
  const auto once = kernels_of(simulated(1, {.strategy = Strategy::ddp}));
  const auto twice = kernels_of(simulated(1, {.strategy = Strategy::ddp, .accumulate = 2}));
  EXPECT_DOUBLE_EQ(flops_of(twice, "matmul"), 2 * flops_of(once, "matmul"));
  EXPECT_DOUBLE_EQ(flops_of(twice, "adamw"), flops_of(once, "adamw"));
}

TEST(WorkLog, OfASimulatedRankMatchesARealOne) {
  const ModelOptions options{.strategy = Strategy::zero3};
  WorkLog real;
  run_ranks(1, [&](World& world) { real = step_of(world, options); }, logged());
  std::vector<trace::KernelWork> computed = kernels_of(real);
  std::vector<trace::KernelWork> counted = kernels_of(simulated(1, options));
  // A real log has no kernels for the device's own copies and fills.
  std::erase_if(counted,
                [](const auto& k) { return k.name == "fill" || k.name.starts_with("copy"); });
  EXPECT_EQ(computed, counted);
  EXPECT_GT(computed.size(), 50U);
  for (const WorkEntry& entry : real.entries()) {
    if (entry.kind == WorkEntry::Kind::kernel) { EXPECT_GT(entry.seconds, 0); }
  }
}

TEST(WorkLog, HasTheBatchesOfZero3WithTheirGroup) {
  const WorkLog log = simulated(4, {.strategy = Strategy::zero3});
  std::map<std::string, int> operations;
  for (const WorkEntry& entry : second_step(log)) {
    if (entry.kind != WorkEntry::Kind::batch) { continue; }
    const trace::BatchWork& batch = log.batches()[entry.index];
    EXPECT_EQ(log.groups()[batch.group], (std::vector{0, 1, 2, 3}));
    for (const auto& one : batch.entries) { ++operations[one.name]; }
  }
  // The root once and blocks twice; every unit's gradients; the norms and the loss.
  EXPECT_EQ(operations["all_gather"], 1 + 2 * kModel.layers);
  EXPECT_EQ(operations["reduce_scatter"], 1 + kModel.layers);
  EXPECT_EQ(operations["all_reduce"], 1);
}

TEST(WorkLog, OfHybridDistinguishesItsGroups) {
  const WorkLog log = simulated(8, {.strategy = Strategy::hybrid, .shard_group = 4});
  std::map<std::string, std::vector<int>> members;
  for (const trace::BatchWork& batch : log.batches()) {
    for (const auto& one : batch.entries) {
      if (one.bytes > 100) { members[one.name] = log.groups()[batch.group]; }
    }
  }
  EXPECT_EQ(members["all_gather"], (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(members["reduce_scatter"], (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(members["all_reduce"], (std::vector{0, 4}));
}

TEST(WorkLog, TakesTheUsersFiguresForCustomWork) {
  WorkLog log;
  const trace::KernelWork mine{.name = "mine", .flops = 7};
  simulate_rank(
      {.rank = 0, .ranks = 2, .backend = {}},
      [&](World& world) {
        world.compute(mine, [] { FAIL() << "nothing is computed here"; });
        log = *world.work_log();
      },
      logged());
  ASSERT_EQ(log.kernels().size(), 1U);
  EXPECT_EQ(log.kernels().front(), mine);
  bool ran = false;
  run_ranks(1, [&](World& world) { world.compute(mine, [&] { ran = true; }); });
  EXPECT_TRUE(ran);
}

TEST(WorkLog, IsRefusedWhereKernelsAreAsynchronous) {
  WorldOptions options = logged();
  options.testing.compute_stream = ComputeStream::worker;
  EXPECT_THROW(run_ranks(1, [](World&) {}, options), ConfigError);
  run_ranks(1, [](World& world) { EXPECT_EQ(world.work_log(), nullptr); });
}

}  // namespace
}  // namespace tessera::work_log_test
