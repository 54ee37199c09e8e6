// The whole GPT against the float64 reference and against its own loss.
#include "nn/nn_support.hpp"
#include "support/decoder_configs.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::decoder_gradients_test {
namespace {

using test::Tensors;

struct Problem {
  DecoderConfig config;
  std::int64_t batch;
  Tensors weights;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;

  Problem(const DecoderConfig& config_, std::int64_t batch_)
      : config{config_},
        batch{batch_},
        weights{test::random_like(reference::gpt_zeros(config), 5, 0.15)},
        inputs{test::random_tokens(batch * config.seq, config.vocab, 1)},
        targets{test::random_tokens(batch * config.seq, config.vocab, 2)} {
    // Near 0 their slope would change over the steps that move the loss.
    for (auto& [name, tensor] : weights) {
      if (name.ends_with("_norm.weight")) { tensor.array() += 1.0; }
    }
  }

  // The sequences of rank `rank` of `ranks`.
  [[nodiscard]] std::span<const std::int32_t> part(const std::vector<std::int32_t>& tokens,
                                                   int rank, int ranks) const {
    const std::size_t count = tokens.size() / static_cast<std::size_t>(ranks);
    return std::span{tokens}.subspan(static_cast<std::size_t>(rank) * count, count);
  }
};

struct Outcome {
  Tensors gradients;
  double loss = 0.0;
  double norm = 0.0;
};

// One step of the library, with the batch divided over the ranks; the results of rank 0.
Outcome run(const Problem& problem, Strategy strategy, int ranks,
            const DecoderOptions& options = {}) {
  Outcome outcome;
  run_ranks(ranks, [&](World& world) {
    auto gpt = shard(Decoder(problem.config, options), world, {.strategy = strategy});
    gpt.materialize(test::initial_from(problem.weights, gpt2_weight_name));
    gpt.optimize_with(SGD{.lr = 0.0F});
    gpt.forward_backward(problem.part(problem.inputs, world.rank(), ranks),
                         problem.part(problem.targets, world.rank(), ranks));
    const Tensors gradients = test::state_of(gpt.model(), StateTensor::gradients, gpt2_weight_name);
    gpt.step();
    if (world.rank() == 0) { outcome = {gradients, gpt.report().loss, gpt.report().grad_norm}; }
  });
  return outcome;
}

double norm_of(const Tensors& tensors) {
  double sum = 0.0;
  for (const auto& [name, tensor] : tensors) { sum += tensor.squaredNorm(); }
  return std::sqrt(sum);
}

void expect_matches_reference(const Problem& problem, const Outcome& outcome) {
  const Tensors expected =
      reference::gpt_gradients(problem.config, problem.weights, problem.inputs, problem.targets);
  const double loss =
      reference::gpt_loss(problem.config, problem.weights, problem.inputs, problem.targets);
  const auto within = test::against_exact(problem.config, std::ssize(problem.inputs));
  test::expect_close(outcome.gradients, expected, within.gradient);
  EXPECT_NEAR(outcome.loss, loss, within.loss * loss);
  EXPECT_NEAR(outcome.norm / norm_of(expected), 1.0, within.gradient);
}

TEST(GPTGradients, MatchTheReferenceAtOddSizes) {
  for (const DecoderConfig& config :
       {DecoderConfig{.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17},
        DecoderConfig{.layers = 1, .hidden = 8, .heads = 1, .vocab = 2, .seq = 2},
        DecoderConfig{.layers = 3, .hidden = 35, .heads = 5, .vocab = 257, .seq = 33},
        DecoderConfig{.layers = 1, .hidden = 64, .heads = 64, .vocab = 31, .seq = 65}}) {
    SCOPED_TRACE(config.hidden);
    const Problem problem(config, 3);
    for (const std::int64_t head_rows : {0, 1, 7, 1000}) {
      SCOPED_TRACE(head_rows);
      expect_matches_reference(problem, run(problem, Strategy::ddp, 1, {.head_rows = head_rows}));
    }
  }
}

TEST(GPTGradients, MatchTheReferenceUnderEveryStrategy) {
  const Problem problem({.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17}, 6);
  for (const Strategy strategy : all_strategies()) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(testing::Message() << to_string(strategy) << ", " << ranks << " ranks");
      expect_matches_reference(problem, run(problem, strategy, ranks));
    }
  }
}

// Along the gradient of one tensor the slope of the loss is the gradient's squared norm.
void expect_slope_of_the_loss(const DecoderConfig& config, const DecoderOptions& options) {
  Problem problem(config, 2);
  const Tensors gradients = run(problem, Strategy::ddp, 1, options).gradients;
  for (const auto& [name, gradient] : gradients) {
    const test::Matrix before = problem.weights.at(name);
    // The loss changes by 1e-2 each way.
    const double step = 1e-2 / gradient.squaredNorm();
    problem.weights.at(name) = before + step * gradient;
    const double up = run(problem, Strategy::ddp, 1, options).loss;
    problem.weights.at(name) = before - step * gradient;
    const double down = run(problem, Strategy::ddp, 1, options).loss;
    problem.weights.at(name) = before;
    const double rounding = test::between_runs(problem.config, 0).loss * up / 2e-2;
    // bound: besides, truncation: second order in the change of each loss, times 20 for the ratio
    // of third to first derivative
    EXPECT_NEAR((up - down) / 2e-2, 1.0, rounding + 20 * std::pow(1e-2, 2)) << name;
  }
}

constexpr DecoderConfig kSlopes{.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};

TEST(GPTGradients, AreTheSlopeOfTheLoss) {
  expect_slope_of_the_loss(kSlopes, {});
}

// Recomputed outputs are no others.
TEST(DecoderGradients, AreTheSlopeOfTheLossWithEveryPart) {
  for (const auto& [name, config] : test::decoder_configs(2, 36, 101, 17)) {
    SCOPED_TRACE(name);
    expect_slope_of_the_loss(
        config, {.recompute = Recompute::activation(config) | Recompute::norms(config)});
  }
}

// The mask of the first step is always the same.
TEST(GPTGradients, AreTheSlopeOfTheLossUnderDropoutToo) {
  expect_slope_of_the_loss(kSlopes, {.dropout = 0.3F});
}

// Two micro-batches of three sequences equal one of six.
TEST(GPTGradients, AccumulateToThoseOfTheWholeBatch) {
  const Problem problem({.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17}, 6);
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    Outcome outcome;
    run_ranks(1, [&](World& world) {
      auto gpt = shard(Decoder(problem.config), world, {.strategy = strategy, .accumulate = 2});
      gpt.materialize(test::initial_from(problem.weights, gpt2_weight_name));
      gpt.optimize_with(SGD{.lr = 0.0F});
      for (int step = 0; step < 2; ++step) {  // the second step starts from zero again
        for (int micro = 0; micro < 2; ++micro) {
          gpt.forward_backward(problem.part(problem.inputs, micro, 2),
                               problem.part(problem.targets, micro, 2));
        }
        outcome.gradients = test::state_of(gpt.model(), StateTensor::gradients, gpt2_weight_name);
        gpt.step();
        outcome.loss = gpt.report().loss;
        outcome.norm = gpt.report().grad_norm;
        expect_matches_reference(problem, outcome);
      }
    });
  }
}

}  // namespace
}  // namespace tessera::nn::decoder_gradients_test
