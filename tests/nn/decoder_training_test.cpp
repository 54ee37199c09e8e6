// Training is the same on one rank and four, with logits gathered and without.
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "device/cpu/host_task.hpp"
#include "nn/nn_support.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::decoder_training_test {
namespace {

using test::Tensors;

constexpr DecoderConfig kConfig{.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};
constexpr std::int64_t kGlobalBatch = 8;
constexpr int kSteps = 50;

std::vector<std::int32_t> tokens_of(int step, int rank, int ranks, std::uint32_t which) {
  const auto all = test::random_tokens(kGlobalBatch * kConfig.seq, kConfig.vocab,
                                       static_cast<std::uint32_t>(2 * step) + which);
  const auto count = std::ssize(all) / ranks;
  return {all.begin() + rank * count, all.begin() + (rank + 1) * count};
}

void train_step(Sharded<Decoder>& gpt, World& world, int step) {
  gpt.forward_backward(tokens_of(step, world.rank(), world.size(), 0),
                       tokens_of(step, world.rank(), world.size(), 1));
}

struct Course {
  std::vector<double> losses;
  Tensors first_gradients;
  double first_norm = 0.0;
};

Course train(Strategy strategy, int ranks) {
  Course course;
  run_ranks(ranks, [&](World& world) {
    auto gpt = shard(Decoder(kConfig), world, {.strategy = strategy});
    gpt.materialize(1);
    gpt.optimize_with(AdamW{.lr = 1e-3F}, {.clip_norm = 1.0F});
    for (int step = 0; step < kSteps; ++step) {
      train_step(gpt, world, step);
      const Tensors gradients =
          step == 0 ? test::state_of(gpt.model(), StateTensor::gradients, gpt2_weight_name)
                    : Tensors{};
      gpt.step();
      if (world.rank() != 0) { continue; }
      course.losses.push_back(gpt.report().loss);
      if (step > 0) { continue; }
      course.first_gradients = gradients;
      course.first_norm = gpt.report().grad_norm;
    }
  });
  return course;
}

TEST(GPTTraining, FourRanksOfTwoTrainAsOneOfEight) {
  const Course alone = train(Strategy::ddp, 1);
  ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(kSteps));
  const auto within = test::between_runs(kConfig, kGlobalBatch * kConfig.seq);
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    const Course four = train(strategy, 4);
    test::expect_close(four.first_gradients, alone.first_gradients, within.gradient);
    EXPECT_NEAR(four.first_norm / alone.first_norm, 1.0, within.gradient);
    for (std::size_t step = 0; step < alone.losses.size(); ++step) {
      EXPECT_NEAR(four.losses[step], alone.losses[step], within.later_loss * alone.losses[0])
          << "step " << step + 1;
    }
  }
}

TEST(GPTTraining, ARepeatedBatchIsMemorised) {
  run_ranks(2, [](World& world) {
    auto gpt = shard(Decoder(kConfig), world, {.strategy = Strategy::zero3});
    gpt.materialize(1);
    gpt.optimize_with(AdamW{.lr = 3e-3F});
    double first = 0.0;
    for (int step = 0; step < 60; ++step) {
      train_step(gpt, world, 0);
      gpt.step();
      if (step == 0) { first = gpt.report().loss; }
    }
    // bound: the loss of a guess, with logits whose variance adds half of it, below 0.4
    EXPECT_NEAR(first, std::log(101.0), 0.2);
    EXPECT_LT(gpt.report().loss, 0.5 * first);
  });
}

// Rank 0 has the logits of the whole batch, other ranks none.
void check_gathered(const Decoder& gpt, const World& world, const Tensors& weights, int step) {
  const ConstView logits = gpt.gathered_logits();
  const std::vector<std::int32_t> inputs = tokens_of(step, 0, 1, 0);
  const std::int64_t stride = kConfig.logits_row_elems();
  ASSERT_EQ(logits.elems, world.rank() == 0 ? std::ssize(inputs) * stride : 0);
  if (world.rank() != 0) { return; }
  const std::span values{static_cast<const float*>(logits.data),
                         static_cast<std::size_t>(logits.elems)};
  const auto rows = test::matrix(values, std::ssize(inputs));
  test::expect_close(rows.leftCols(kConfig.vocab), reference::gpt_logits(kConfig, weights, inputs),
                     test::against_exact(kConfig, 1).logits, "logits");
  EXPECT_TRUE(rows.rightCols(stride - kConfig.vocab).isZero(0.0));
}

// Delays show whether logits are overwritten by gradients before they are sent.
TEST(GPTGatherLogits, RankZeroHoldsTheLogitsOfAllRanksHoweverLateTheyCome) {
  const Tensors weights = test::random_like(reference::gpt_zeros(kConfig), 5, 0.15);
  const WorldOptions late{
      .testing = {.poison = SlotPoison::nan, .delays = DelayInjection{.seed = 3}}};
  for (const Strategy strategy : {Strategy::dp, Strategy::zero3}) {
    const auto body = [&](World& world) {
      auto gpt = shard(Decoder(kConfig, {.gather_logits = GatherLogits::on_rank0}), world,
                       {.strategy = strategy});
      gpt.materialize(test::initial_from(weights, gpt2_weight_name));
      gpt.optimize_with(SGD{.lr = 0.0F});
      for (int step = 0; step < 5; ++step) {
        train_step(gpt, world, step);
        check_gathered(gpt.module(), world, weights, step);
        gpt.step();
      }
    };
    run_ranks(4, body, late);
  }
}

// An error may end a step while logits are being gathered: the GPT owns their memory.
TEST(GPTGatherLogits, AGptOutlivesALogitsTransfer) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world, {}};
    std::optional<Decoder> gpt{std::in_place, kConfig,
                               DecoderOptions{.gather_logits = GatherLogits::on_rank0}};
    gpt->declare(model);
    model.materialize(gpt->initializer(1));
    gpt->reserve(1);
    std::atomic<bool> gathered = false;
    device::enqueue(world.gather_channel().stream, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      gathered = true;
    });
    gpt.reset();
    EXPECT_TRUE(gathered);
  });
}

// Gathering the logits changes nothing else.
TEST(GPTGatherLogits, DoesNotChangeTheLoss) {
  std::vector<double> losses;
  for (const GatherLogits gather : {GatherLogits::off, GatherLogits::on_rank0}) {
    run_ranks(3, [&](World& world) {
      auto gpt = shard(Decoder(kConfig, {.gather_logits = gather}), world);
      gpt.materialize(1);
      gpt.optimize_with(AdamW{});
      const auto tokens = test::random_tokens(34, 101, static_cast<std::uint32_t>(world.rank()));
      for (int step = 0; step < 3; ++step) {
        gpt.forward_backward(tokens, tokens);
        gpt.step();
      }
      if (world.rank() == 0) { losses.push_back(gpt.report().loss); }
    });
  }
  EXPECT_EQ(losses.at(0), losses.at(1));
}

}  // namespace
}  // namespace tessera::nn::decoder_training_test
