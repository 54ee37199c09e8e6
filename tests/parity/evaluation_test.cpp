// A training's loss is what an evaluation and the logits of every prefix give, for decoders of all
// parts on all meshes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/decoder_configs.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::evaluation_test {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kSeq = 11;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kVocab = 37;

Tokens tokens(int which) {
  Tokens all;
  for (std::int64_t i = 0; i < kBatch * kSeq; ++i) {
    all.push_back(static_cast<std::int32_t>((i * 7 + i * i * 3 + which * 11) % kVocab));
  }
  return all;
}

/// The mean loss from the logits after every prefix.
double loss_of_prefixes(nn::Decoder& decoder, const Tokens& inputs, const Tokens& targets) {
  double sum = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t first = i / kSeq * kSeq;
    const auto logits = decoder.next_logits(std::span{inputs}.subspan(first, i + 1 - first));
    double exponentials = 0;
    for (const float logit : logits) { exponentials += std::exp(static_cast<double>(logit)); }
    sum +=
        std::log(exponentials) - static_cast<double>(logits[static_cast<std::size_t>(targets[i])]);
  }
  return sum / static_cast<double>(inputs.size());
}

struct Losses {
  double trained = 0;
  double evaluated = 0;
  double of_prefixes = 0;
};

Losses losses_of(const nn::DecoderConfig& config, const nn::DecoderOptions& decoder,
                 ModelOptions options, int ranks) {
  Losses losses;
  run_ranks(ranks, [&](World& world) {
    const Tokens inputs = tokens(1);
    const Tokens targets = tokens(2);
    auto model = shard(nn::Decoder(config, decoder), world, options);
    model.materialize(5);
    model.module().reserve(kBatch);
    Losses mine;
    mine.evaluated = model.module().evaluate(inputs, targets);
    mine.of_prefixes = loss_of_prefixes(model.module(), inputs, targets);
    if (options.purpose == Purpose::training) {
      model.optimize_with(SGD{.lr = 0.0F});
      model.run([&](int) -> nn::MicroBatch { return {inputs, targets}; });
      model.step();
      mine.trained = model.report().loss;
    }
    if (world.rank() == 0) { losses = mine; }
  });
  return losses;
}

class Evaluation : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Decoders, Evaluation, ::testing::Range(std::size_t{0}, std::size_t{6}),
                         [](const auto& test) {
                           return std::string{
                               decoder_configs(3, 36, kVocab, kSeq)[test.param].name};
                         });

TEST_P(Evaluation, GivesTheLossOfATraining) {
  const nn::DecoderConfig config = decoder_configs(3, 36, kVocab, kSeq)[GetParam()].config;
  for (const int ranks : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      if (ranks == 1 && sequence_parallel) { continue; }
      SCOPED_TRACE(fmt::format("{} ranks, sequence parallel {}", ranks, sequence_parallel));
      ModelOptions options{.strategy = Strategy::zero3};
      if (ranks > 1) { options.mesh = {{"pipe", ranks / 2}, {"shard", 1}, {"tensor", 2}}; }
      const nn::DecoderOptions decoder{.sequence_parallel = sequence_parallel};
      const Losses training = losses_of(config, decoder, options, ranks);
      options.purpose = Purpose::inference;
      const Losses inference = losses_of(config, decoder, options, ranks);
      const double near = between_runs(config, 0).loss * training.trained;
      EXPECT_NEAR(training.evaluated, training.trained, near);
      EXPECT_NEAR(training.of_prefixes, training.trained, near);
      EXPECT_NEAR(inference.evaluated, training.trained, near);
      EXPECT_NEAR(inference.of_prefixes, training.trained, near);
    }
  }
}

// Twice the queries at half the scale are the same scores to the bit.
TEST(AttentionScale, MultipliesTheScores) {
  nn::DecoderConfig config{.layers = 2, .hidden = 36, .heads = 9, .vocab = kVocab, .seq = kSeq};
  const auto loss_with = [&](float scale, float queries) {
    config.attention_scale = scale;
    double loss = 0;
    run_ranks(1, [&](World& world) {
      auto model = shard(nn::Decoder(config), world, ModelOptions{});
      const Initializer drawn = model.module().initializer(5);
      model.materialize(
          [&](const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
            drawn(parameter, first, out);
            const bool packed = parameter.name.starts_with("attn.c_attn");
            for (std::size_t i = 0; packed && i < out.size(); ++i) {
              const auto column = (first + static_cast<std::int64_t>(i)) % (3 * config.hidden);
              out[i] *= 8.0F * (column < config.hidden ? queries : 1.0F);
            }
          });
      model.module().reserve(kBatch);
      loss = model.module().evaluate(tokens(1), tokens(2));
    });
    return loss;
  };
  const double expected = loss_with(0.0F, 1.0F);  // heads of 4 values: 0.5
  EXPECT_EQ(loss_with(0.25F, 2.0F), expected);
  EXPECT_NE(loss_with(0.25F, 1.0F), expected);
}

}  // namespace
}  // namespace tessera::test::evaluation_test
