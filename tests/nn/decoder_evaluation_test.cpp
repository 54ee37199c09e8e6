// Losses and logits without gradients, in the training's memory or in a small amount of their own.
#include "nn/decoder_course.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::nn::decoder_evaluation_test {
namespace {

using test::CourseOptions;
using test::Tensors;

constexpr DecoderConfig kConfig{.layers = 3, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};
constexpr std::int64_t kBatch = 5;  // 85 rows: more than are evaluated at a time

// An evaluation works in the first layer's memory, without room for recomputed outputs.
const Recompute kRecompute = Recompute::chosen([](std::int64_t layer) { return layer == 1; }) |
                             Recompute::gelu() | Recompute::layer_norm();

struct Problem {
  Tensors weights = test::random_like(reference::gpt_zeros(kConfig), 5, 0.15);
  std::vector<std::int32_t> inputs = test::random_tokens(kBatch * kConfig.seq, kConfig.vocab, 1);
  std::vector<std::int32_t> targets = test::random_tokens(kBatch * kConfig.seq, kConfig.vocab, 2);
};

void with_gpts(const Problem& problem, int ranks,
               const std::function<void(World&, Sharded<Decoder>&)>& body) {
  for (const Strategy strategy : all_strategies()) {
    for (const Purpose purpose : {Purpose::training, Purpose::inference}) {
      SCOPED_TRACE(testing::Message() << to_string(strategy) << (purpose == Purpose::inference));
      run_ranks(ranks, [&](World& world) {
        auto gpt =
            shard(Decoder(kConfig, {.recompute = kRecompute, .head_rows = 10, .dropout = 0.4F}),
                  world, {.strategy = strategy, .purpose = purpose});
        gpt.materialize(test::initial_from(problem.weights, gpt2_weight_name));
        body(world, gpt);
      });
    }
  }
}

// Each rank's batch; dropout is off.
TEST(GPTEvaluation, IsTheLossOfTheReference) {
  const Problem problem;
  const double expected =
      reference::gpt_loss(kConfig, problem.weights, problem.inputs, problem.targets);
  const std::span<const std::int32_t> inputs{problem.inputs};
  const std::span<const std::int32_t> targets{problem.targets};
  const double one =
      reference::gpt_loss(kConfig, problem.weights, inputs.first(17), targets.first(17));
  with_gpts(problem, 2, [&](World& world, Sharded<Decoder>& gpt) {
    gpt.module().reserve(kBatch);
    const std::size_t count = world.rank() == 0 ? inputs.size() : 17;
    const double loss = gpt.module().evaluate(inputs.first(count), targets.first(count));
    const double wanted = world.rank() == 0 ? expected : one;
    EXPECT_NEAR(loss, wanted, test::against_exact(kConfig, 0).loss * wanted);
  });
}

TEST(GPTEvaluation, NextLogitsAreTheReferencesLastRow) {
  const Problem problem;
  with_gpts(problem, 2, [&](World& world, Sharded<Decoder>& gpt) {
    gpt.module().reserve(1);
    for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{17}}) {
      const std::size_t own = world.rank() == 0 ? count : 18 - count;
      std::vector<std::int32_t> padded(problem.inputs.begin(), problem.inputs.begin() + 17);
      const auto logits = gpt.module().next_logits(std::span{padded}.first(own));
      std::fill(padded.begin() + static_cast<std::ptrdiff_t>(own), padded.end(), 0);
      const test::Matrix all = reference::gpt_logits(kConfig, problem.weights, padded);
      test::expect_close(test::matrix(logits, 1), all.row(static_cast<Eigen::Index>(own) - 1),
                         test::against_exact(kConfig, 0).logits, "logits");
    }
  });
}

// Between any two steps, any number of times.
TEST(GPTEvaluation, ChangesNoBitOfTheTraining) {
  for (const Strategy strategy : all_strategies()) {
    const CourseOptions options{.gpt = {.recompute = Recompute::block(), .dropout = 0.1F},
                                .model = {.strategy = strategy, .accumulate = 2},
                                .ranks = 2};
    const auto between = [&](Sharded<Decoder>& gpt) {
      const auto tokens = course_tokens(options, 9, 0, gpt.model().world().rank(), 0);
      const double loss = gpt.module().evaluate(tokens, tokens);
      EXPECT_EQ(gpt.module().evaluate(tokens, tokens), loss);
      static_cast<void>(gpt.module().next_logits(std::span{tokens}.first(3)));
    };
    EXPECT_EQ(train_course(options, between), train_course(options)) << to_string(strategy);
  }
}

// Training needs no extra byte. Inference needs two streams, one layer, and the logits of 64 rows.
TEST(GPTEvaluation, UsesTheMemoryThatIsThere) {
  const Problem problem;
  with_gpts(problem, 1, [&](World& world, Sharded<Decoder>& gpt) {
    const std::size_t before = world.memory().report().live[Category::activations];
    gpt.module().reserve(kBatch);
    const MemoryReport reserved = world.memory().report();
    static_cast<void>(gpt.module().evaluate(problem.inputs, problem.targets));
    static_cast<void>(gpt.module().next_logits(std::span{problem.inputs}.first(4)));
    const MemoryReport after = world.memory().report();
    EXPECT_EQ(after.live, reserved.live);
    EXPECT_EQ(after.allocations, reserved.allocations);
    EXPECT_EQ(after.in_use, reserved.in_use);
    if (gpt.model().options().purpose != Purpose::inference) { return; }
    const auto need = [](std::int64_t values) {
      return Arena::need(static_cast<std::size_t>(values) * 4);
    };
    const std::int64_t rows = kBatch * 17;
    EXPECT_EQ(reserved.live[Category::activations] - before,
              2 * need(rows) + 2 * need(rows * 36) + 4 * need(rows * 36) + need(rows * 3 * 36) +
                  2 * need(rows * 4 * 36) + need(rows * 3) + 6 * need(rows) +
                  need(64 * kConfig.logits_row_elems()));
  });
}

TEST(GPTEvaluation, PlannedMemoryIsMeasuredMemory) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world, MemoryReport& report) {
      auto gpt =
          shard(Decoder(kConfig), world, {.strategy = strategy, .purpose = Purpose::inference});
      gpt.materialize(1);
      const std::vector<std::int32_t> tokens(17, 3);
      for (int pass = 0; pass < 2; ++pass) {
        static_cast<void>(gpt.module().evaluate(tokens, tokens));
        static_cast<void>(gpt.module().next_logits(tokens));
      }
      if (world.rank() == 0) { report = world.memory().report(); }
    };
    MemoryReport measured;
    MemoryReport planned;
    run_ranks(2, [&](World& world) { body(world, measured); });
    simulate_rank({.rank = 0, .ranks = 2}, [&](World& world) { body(world, planned); });
    EXPECT_EQ(planned.peak_bytes, measured.peak_bytes) << to_string(strategy);
    EXPECT_EQ(planned.at_peak, measured.at_peak) << to_string(strategy);
    EXPECT_EQ(planned.most_in_use, measured.most_in_use) << to_string(strategy);
    EXPECT_EQ(measured.live[Category::gradients] + measured.live[Category::optimizer], 0U);
  }
}

TEST(GPTEvaluation, RefusesUnsupportedRequests) {
  const Problem problem;
  const std::span<const std::int32_t> tokens{problem.inputs};
  run_ranks(1, [&](World& world) {
    auto gpt = shard(Decoder(kConfig), world, {.accumulate = 2});
    gpt.materialize(1);
    gpt.optimize_with(AdamW{});
    Decoder& net = gpt.module();
    EXPECT_THROW((void)net.evaluate(tokens.first(17), tokens.first(17)), ContractError);
    EXPECT_THROW((void)net.next_logits(tokens.first(1)), ContractError);
    net.reserve(1);  // the calls above did not set another batch size
    EXPECT_THROW((void)net.evaluate(tokens.first(34), tokens.first(34)), ContractError);
    EXPECT_THROW((void)net.next_logits({}), ContractError);
    EXPECT_THROW((void)net.next_logits(tokens.first(18)), ContractError);
    const std::vector<std::int32_t> bad{101};
    EXPECT_THROW((void)net.next_logits(bad), ConfigError);
    net.forward_backward(tokens.first(17), tokens.first(17));
    EXPECT_THROW((void)net.evaluate(tokens.first(17), tokens.first(17)), ContractError);
    EXPECT_THROW((void)net.next_logits(tokens.first(1)), ContractError);
    net.forward_backward(tokens.first(17), tokens.first(17));
    gpt.step();
    EXPECT_GT(net.evaluate(tokens.first(17), tokens.first(17)), 0.0);
  });
  run_ranks(1, [&](World& world) {
    auto gpt = shard(Decoder(kConfig), world, {.purpose = Purpose::inference});
    gpt.materialize(1);
    EXPECT_THROW(gpt.module().forward(tokens.first(17), tokens.first(17)), ContractError);
  });
}

}  // namespace
}  // namespace tessera::nn::decoder_evaluation_test
