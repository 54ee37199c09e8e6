// A GPT's memory is a formula of its sizes, allocated once.
#include "nn/decoder_activations.hpp"
#include "nn/nn_support.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::nn::decoder_memory_test {
namespace {

constexpr DecoderConfig kConfig{.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};

void expect_what_the_formula_says(GatherLogits gather, const WorldOptions& options) {
  run_ranks(
      2,
      [&](World& world) {
        auto gpt = shard(Decoder(kConfig, {.gather_logits = gather}), world);
        const CategoryBytes before = world.memory().report().live;
        gpt.module().reserve(3);
        const CategoryBytes after = world.memory().report().live;
        const DecoderBytes expected =
            Decoder::bytes_needed(kConfig, {.gather_logits = gather}, 3, world);
        const auto taken = [&](Category category) { return after[category] - before[category]; };
        EXPECT_EQ(taken(Category::activations), expected.activations);
        EXPECT_EQ(taken(Category::workspace), expected.workspace);
        EXPECT_EQ(taken(Category::gather), expected.gather);
        EXPECT_EQ(after.total() - before.total(),
                  expected.activations + expected.workspace + expected.gather);
        const bool collects = gather == GatherLogits::on_rank0 && world.rank() == 0;
        EXPECT_EQ(expected.gather > 0, collects);
      },
      options);
}

TEST(GPTMemory, ReserveTakesTheBytesOfTheFormula) {
  for (const GatherLogits gather : {GatherLogits::off, GatherLogits::on_rank0}) {
    for (const int threads : {1, 3, 40}) {
      SCOPED_TRACE(threads);
      expect_what_the_formula_says(gather, {.threads = threads});
    }
  }
}

std::size_t workspace_with(int threads, const DecoderConfig& config) {
  std::size_t bytes = 0;
  const WorldOptions options{.threads = threads};
  const auto ask = [&](World& world) {
    bytes = Decoder::bytes_needed(config, {}, /*batch=*/2, world).workspace;
  };
  run_ranks(1, ask, options);
  return bytes;
}

// Each thread that computes a head needs two tiles of 64 query rows by the sequence length.
TEST(GPTMemory, EveryThreadHasItsOwnTilesOfAttention) {
  const DecoderConfig config{.layers = 1, .hidden = 64, .heads = 2, .vocab = 16, .seq = 128};
  const std::size_t tiles = 2UL * 64 * 128 * sizeof(float);
  const std::size_t one = workspace_with(1, config);
  EXPECT_EQ(workspace_with(2, config), one + tiles);
  EXPECT_EQ(workspace_with(3, config), one + 2 * tiles);
  EXPECT_EQ(workspace_with(9, config), one + 3 * tiles);  // two sequences of two heads
}

// Worked by hand: 16 times the hidden size per row and layer is kept; 3 values outside the layers.
TEST(GPTMemory, ActivationsAreSixteenHiddenARowAndLayer) {
  const DecoderConfig config{.layers = 3, .hidden = 64, .heads = 4, .vocab = 256, .seq = 32};
  const std::size_t rows = 2 * 32;
  const std::size_t values = 3 * (16 * 64 + 4 + 4) /* layers */ + 64 + 64 + 2 /* ln_f */ +
                             256 /* logits */ + 2 /* tokens */;
  run_ranks(1, [&](World& world) {
    EXPECT_EQ(Decoder::bytes_needed(config, {}, 2, world).activations, rows * values * 4);
  });
}

TEST(GPTMemory, AHeadInChunksHoldsTheLogitsOfOne) {
  const DecoderConfig config{.layers = 3, .hidden = 64, .heads = 4, .vocab = 256, .seq = 32};
  run_ranks(1, [&](World& world) {
    const DecoderBytes whole = Decoder::bytes_needed(config, {}, 2, world);
    for (const std::int64_t rows : {16, 64, 1000}) {
      const DecoderBytes chunks = Decoder::bytes_needed(config, {.head_rows = rows}, 2, world);
      const auto fewer = static_cast<std::size_t>(64 - std::min<std::int64_t>(rows, 64));
      EXPECT_EQ(whole.activations - chunks.activations, fewer * 256 * 4) << rows;
      EXPECT_EQ(whole.workspace, chunks.workspace);
    }
  });
}

TEST(GPTMemory, TheMatrixOfAllHeadsIsNotHeld) {
  const DecoderConfig config{.layers = 1, .hidden = 64, .heads = 8, .vocab = 16, .seq = 1024};
  run_ranks(1, [&](World& world) {
    const std::size_t matrix_of_all_heads = 8UL * 1024 * 1024 * sizeof(float);
    const std::size_t gradients = 6UL * 1024 * 64 * sizeof(float);
    const DecoderBytes bytes = Decoder::bytes_needed(config, {}, 1, world);
    EXPECT_LT(bytes.workspace - gradients, matrix_of_all_heads / 8);
    // This workspace does not grow with the number of sequences either.
    const DecoderBytes four = Decoder::bytes_needed(config, {}, 4, world);
    EXPECT_EQ(four.workspace - 4 * gradients, bytes.workspace - gradients);
  });
}

// For GPT-2 at batch 64 all heads at a time; for a smaller head, as much as its logits hold;
// nothing where that is less than attention's own workspace, or where attention cannot use more.
TEST(GPTMemory, LogitsAreLentToAttentionWhereItCanUseThem) {
  struct Lending {
    DeviceKind device;
    DType compute;
    std::int64_t batch;
    std::int64_t vocab;
    std::int64_t head_rows;
    std::size_t lent_bytes;
  };
  constexpr std::size_t kWhole = std::size_t{768} * (1024 * 1024 * 2 + 1024 * 4) + (1U << 20U);
  for (const auto& [device, compute, batch, vocab, head_rows, lent_bytes] :
       {Lending{DeviceKind::cuda, DType::bf16, 64, 50257, 0, kWhole},
        Lending{DeviceKind::cuda, DType::bf16, 64, 50257, 8192, std::size_t{8192} * 50304 * 2},
        Lending{DeviceKind::cuda, DType::bf16, 64, 50257, 1024, 0},
        Lending{DeviceKind::cuda, DType::bf16, 64, 4096, 0, std::size_t{65536} * 4096 * 2},
        Lending{DeviceKind::cuda, DType::bf16, 64, 960, 0, 0},
        Lending{DeviceKind::cuda, DType::fp32, 64, 50257, 0, 0},
        Lending{DeviceKind::cpu, DType::bf16, 64, 50257, 0, 0}}) {
    DecoderConfig config = DecoderConfig::preset("gpt2");
    config.vocab = vocab;
    simulate_rank({.rank = 0, .ranks = 1, .backend = {.device = device}}, [&](World& world) {
      Cutter kept;
      Cutter passing;
      const DecoderOptions options{.head_rows = head_rows};
      const DecoderActivations at = cut_activations(
          activation_sizes(config, options, batch, world, {.compute = compute}), kept, passing);
      EXPECT_EQ(at.lent_bytes, lent_bytes) << vocab;
      for (const Block::Saved& block : at.slots.front().front().blocks) {
        EXPECT_EQ(static_cast<std::size_t>(block.attn.lent_elems) * sizeof(float), lent_bytes);
      }
    });
  }
}

TEST(GPTMemory, NothingIsAllocatedAfterTheFirstStepAndThePeakStays) {
  for (const Strategy strategy : all_strategies()) {
    for (const int accumulate : {1, 3}) {
      const auto body = [&](World& world) {
        auto gpt = shard(Decoder(kConfig, {.gather_logits = GatherLogits::on_rank0}), world,
                         {.strategy = strategy, .accumulate = accumulate});
        gpt.materialize(1);
        gpt.optimize_with(AdamW{}, {.clip_norm = 1.0F});
        const std::vector<std::int32_t> tokens = test::random_tokens(2 * 17, 101, 1);
        const auto step = [&] {
          for (int micro = 0; micro < accumulate; ++micro) { gpt.forward_backward(tokens, tokens); }
          gpt.step();
        };
        step();
        const MemoryReport first = world.memory().report();
        for (int more = 0; more < 4; ++more) { step(); }
        const MemoryReport last = world.memory().report();
        EXPECT_EQ(last.allocations, first.allocations) << to_string(strategy);
        EXPECT_EQ(last.peak_bytes, first.peak_bytes) << to_string(strategy);
        EXPECT_EQ(last.live, first.live) << to_string(strategy);
      };
      run_ranks(3, body, {.threads = accumulate == 1 ? 2 : 1});
    }
  }
}

TEST(GPTMemory, EverythingIsFreed) {
  run_ranks(2, [](World& world) {
    const CategoryBytes before = world.memory().report().live;
    {
      auto gpt = shard(Decoder(kConfig), world, {.strategy = Strategy::zero2});
      gpt.materialize(1);
      gpt.optimize_with(AdamW{});
      const std::vector<std::int32_t> tokens = test::random_tokens(2 * 17, 101, 1);
      gpt.forward_backward(tokens, tokens);
      gpt.step();
    }
    EXPECT_EQ(world.memory().report().live, before);
  });
}

// The tables of rotary positions would take 2^39 bytes here.
TEST(DecoderMemory, OfAPlanIsNotTouched) {
  DecoderConfig config{.layers = 1, .hidden = 128, .heads = 1, .vocab = 64, .seq = 1 << 30};
  config.positions = PositionKind::rotary;
  simulate_rank({}, [&](World& world) {
    auto decoder = shard(Decoder(config), world, ModelOptions{});
    decoder.materialize(1);
    decoder.module().reserve(1);
    EXPECT_GT(world.memory().report().peak_bytes, std::size_t{1} << 39);
  });
}

}  // namespace
}  // namespace tessera::nn::decoder_memory_test
