// Row sizes of the head's products for any vocabulary, and the effect of the room for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/emulation.hpp"
#include "cuda/support.hpp"
#include "emulated_cuda/controls.hpp"
#include "support/gpt_run.hpp"
#include "support/groups.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::whole_rows_test {
namespace {

using test::Emulation;

// All sizes but the vocabulary are multiples of 8.
GPTRun run_of(std::int64_t vocab, Strategy strategy, DType compute, DType gradient) {
  GPTRun run;
  run.config = {.layers = 1, .hidden = 8, .heads = 1, .vocab = vocab, .seq = 8};
  run.options.strategy = strategy;
  run.options.shard_group = groups_of_one(strategy);
  run.options.compute = compute;
  run.options.gradient = gradient;
  run.world.device = DeviceKind::cuda;
  run.ranks = 2;
  run.steps = 1;
  return run;
}

EmulatedCublasLtCounts counts() {
  EmulatedCublasLtCounts now{};
  device::CudaModule::get().function<void(EmulatedCublasLtCounts*)>("emulated_cublaslt_counts")(
      &now);
  return now;
}

class WholeRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
  static void expect_even_products(const GPTRun& run) {
    SCOPED_TRACE(std::to_string(run.config.vocab) + " " +
                 std::string{to_string(run.options.strategy)} + " " +
                 std::string{to_string(run.options.compute)});
    const EmulatedCublasLtCounts before = counts();
    (void)train_gpt(run);
    const EmulatedCublasLtCounts after = counts();
    // Products: a block has 4 forward and 8 backward, the head 1 and 2, on two ranks.
    EXPECT_EQ(after.products - before.products, 30U);
    EXPECT_EQ(after.uneven, before.uneven)
        << "the last: " << after.m << " x " << after.n << " x " << after.k;
  }
};

TEST_F(WholeRows, AreTheOnlyShapesTrainingGivesCublasLt) {
  TESSERA_EMULATION_ONLY();
  for (const Strategy strategy : all_strategies()) {
    expect_even_products(run_of(257, strategy, DType::bf16, DType::fp32));
  }
  expect_even_products(run_of(257, Strategy::zero3, DType::fp32, DType::fp32));
  expect_even_products(run_of(257, Strategy::zero3, DType::fp16, DType::fp16));
  expect_even_products(run_of(50257, Strategy::zero3, DType::bf16, DType::fp32));
}

TEST_F(WholeRows, PlannedMemoryIsMeasuredMemory) {
  for (const Strategy strategy : all_strategies()) {
    const GPTRun run = run_of(257, strategy, DType::bf16, DType::fp32);
    const auto body = [&](World& world) {
      auto gpt = shard(nn::Decoder{run.config}, world, run.options);
      gpt.materialize(/*seed=*/3);
      gpt.optimize_with(AdamW{});
      const std::vector<std::int32_t> tokens(16, 1);
      for (int step = 0; step < 2; ++step) {
        gpt.forward_backward(tokens, tokens);
        gpt.step();
      }
    };
    const auto planned = plan({.ranks = run.ranks, .backend = {.device = DeviceKind::cuda}}, body);
    std::vector<MemoryReport> held(static_cast<std::size_t>(run.ranks));
    run_ranks(
        run.ranks,
        [&](World& world) {
          body(world);
          held[static_cast<std::size_t>(world.rank())] = world.memory().report();
        },
        run.world);
    for (const PlannedRank& rank : planned) {
      for (int r = rank.rank; r < rank.rank + rank.count; ++r) {
        EXPECT_EQ(difference(rank.memory, held[static_cast<std::size_t>(r)]), "")
            << to_string(strategy) << ", rank " << r;
      }
    }
  }
}

// Elements of the table including its room, and its number of parameters.
std::tuple<std::int64_t, std::int64_t> table_of(World& world, std::int64_t vocab) {
  constexpr std::int64_t hidden = 8;
  const nn::Embedding embedding{
      world,
      {.vocab = vocab,
       .positions = 4,
       .hidden = hidden,
       .logits_row_elems = nn::DecoderConfig{.vocab = vocab}.logits_row_elems()}};
  const ParameterSpec table = embedding.parameters().front();
  return {std::max(table.room, table.shape.elems()), table.shape.elems()};
}

TEST_F(WholeRows, HaveRoomOnlyOnCuda) {
  for (const std::int64_t vocab : {std::int64_t{257}, std::int64_t{320}, std::int64_t{50257}}) {
    const std::int64_t whole = (vocab + 63) / 64 * 64;
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
      WorldOptions options;
      options.device = kind;
      const std::int64_t rows = kind == DeviceKind::cuda ? whole : vocab;
      run_ranks(
          1,
          [&](World& world) { EXPECT_EQ(table_of(world, vocab), std::tuple(8 * rows, 8 * vocab)); },
          options);
    }
  }
}

}  // namespace
}  // namespace tessera::test::whole_rows_test
