// A GPT's units, its initial values, and the errors it throws.
#include "tessera/nn/decoder.hpp"

#include <gmock/gmock.h>

#include "nn/nn_support.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::decoder_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr DecoderConfig kConfig{.layers = 2, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};

test::Tensors initial_weights(World& world, Strategy strategy, std::uint64_t seed) {
  auto gpt = shard(Decoder(kConfig), world, {.strategy = strategy});
  gpt.materialize(seed);
  return test::state_of(gpt.model(), StateTensor::parameters, gpt2_weight_name);
}

TEST(GPT, ParametersHaveTheNamesAndOrderOfHuggingFace) {
  std::vector<std::string> names;
  std::int64_t elems = 0;
  run_ranks(1, [&](World& world) {
    auto gpt = shard(Decoder(kConfig), world);
    gpt.materialize(1);
    gpt.model().export_state(StateTensor::parameters,
                             [&](const ParameterInfo& parameter, std::span<const float> values) {
                               names.push_back(gpt2_weight_name(parameter));
                               elems += std::ssize(values);
                               EXPECT_EQ(parameter.shape.elems(), std::ssize(values));
                             });
    EXPECT_EQ(gpt.model().parameter_elems(), kConfig.parameter_elems());
  });
  EXPECT_EQ(elems, kConfig.parameter_elems());

  std::vector<std::string> expected{"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"};
  for (const std::string layer : {"h.0.", "h.1."}) {
    for (const char* name :
         {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
          "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight",
          "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"}) {
      expected.push_back(layer + name);
    }
  }
  EXPECT_EQ(names, expected);
}

double stddev(const test::Matrix& values) {
  return std::sqrt((values.array() - values.mean()).square().mean());
}

TEST(GPT, StartsAsGPT2Does) {
  run_ranks(1, [](World& world) {
    const test::Tensors weights = initial_weights(world, Strategy::ddp, 1);
    for (const auto& [name, values] : weights) {
      if (name.ends_with(".bias")) {
        EXPECT_EQ(values.cwiseAbs().maxCoeff(), 0.0) << name;
      } else if (name.find("ln_") != std::string::npos) {
        EXPECT_EQ((values.array() - 1.0).abs().maxCoeff(), 0.0) << name;
      } else {
        const double expected = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(4.0) : 0.02;
        // The deviation estimated from n values has an error of 1 in sqrt(2n); five times that is
        // allowed.
        const double slack = 5.0 / std::sqrt(2.0 * static_cast<double>(values.size()));
        EXPECT_NEAR(stddev(values) / expected, 1.0, slack) << name;
        EXPECT_NEAR(values.mean() / expected, 0.0, slack * std::sqrt(2.0)) << name;
      }
    }
    EXPECT_NE(weights.at("h.0.mlp.c_fc.weight"), weights.at("h.1.mlp.c_fc.weight"));
    EXPECT_NE(weights.at("wte.weight"), initial_weights(world, Strategy::ddp, 2).at("wte.weight"));
  });
}

TEST(GPT, StartsFromTheSameBitsForEveryStrategyAndNumberOfRanks) {
  test::Tensors alone;
  run_ranks(1, [&](World& world) { alone = initial_weights(world, Strategy::ddp, 7); });
  for (const Strategy strategy : all_strategies()) {
    for (const int ranks : {1, 2, 3, 4}) {
      run_ranks(ranks, [&](World& world) {
        EXPECT_EQ(initial_weights(world, strategy, 7), alone)
            << to_string(strategy) << ", " << ranks << " ranks";
      });
    }
  }
}

TEST(GPT, RefusesImpossibleHeadRows) {
  EXPECT_THAT(
      [] { Decoder(kConfig, {.head_rows = -1}); },
      ThrowsMessage<ConfigError>(HasSubstr("head_rows of -1: give the number of rows at a time")));
  EXPECT_THAT([] { Decoder(kConfig, {.gather_logits = GatherLogits::on_rank0, .head_rows = 64}); },
              ThrowsMessage<ConfigError>(HasSubstr("head_rows of 64 with GatherLogits::on_rank0")));
}

class OneRankGPT : public testing::Test {
 protected:
  // Calls `body` with a GPT that is ready to train.
  static void with_gpt(const std::function<void(Sharded<Decoder>&)>& body) {
    run_ranks(1, [&](World& world) {
      auto gpt = shard(Decoder(kConfig), world);
      gpt.materialize(1);
      gpt.optimize_with(AdamW{});
      body(gpt);
    });
  }
  static std::vector<std::int32_t> tokens(std::int64_t sequences) {
    return test::random_tokens(sequences * kConfig.seq, kConfig.vocab, 3);
  }
};

TEST_F(OneRankGPT, ATokenOutsideTheVocabularyIsRefusedAndTheModelStaysUsable) {
  with_gpt([](Sharded<Decoder>& gpt) {
    std::vector<std::int32_t> bad = tokens(2);
    bad[5] = 101;
    EXPECT_THAT([&] { gpt.forward_backward(bad, tokens(2)); },
                ThrowsMessage<ConfigError>(HasSubstr("inputs[5] is token 101")));
    bad[5] = -1;
    EXPECT_THAT([&] { gpt.forward_backward(tokens(2), bad); },
                ThrowsMessage<ConfigError>(HasSubstr("targets[5] is token -1")));
    gpt.forward_backward(tokens(2), tokens(2));
    gpt.step();
    EXPECT_EQ(gpt.report().step, 1);
  });
}

TEST_F(OneRankGPT, RefusesPartialSequences) {
  with_gpt([](Sharded<Decoder>& gpt) {
    const std::vector<std::int32_t> two = tokens(2);
    const std::span<const std::int32_t> all{two};
    EXPECT_THROW(gpt.forward_backward(all.first(20), all.first(20)), ContractError);
    EXPECT_THROW(gpt.forward_backward(all.first(0), all.first(0)), ContractError);
    EXPECT_THROW(gpt.forward_backward(all, all.first(17)), ContractError);
    gpt.forward_backward(all, all);
    gpt.step();
    EXPECT_THROW(gpt.forward_backward(all.first(17), all.first(17)), ContractError);
  });
}

TEST_F(OneRankGPT, RefusesCallsOutOfOrder) {
  with_gpt([](Sharded<Decoder>& gpt) {
    EXPECT_THROW(gpt.module().backward(), ContractError);
    EXPECT_THROW(gpt.module().declare(gpt.model()), ContractError);
    EXPECT_THROW(gpt.module().reserve(0), ConfigError);
    gpt.module().forward(tokens(1), tokens(1));
    EXPECT_THROW(gpt.module().forward(tokens(1), tokens(1)), ContractError);
    gpt.module().backward();
    gpt.step();
  });
}

TEST(GPT, CannotBeUsedBeforeItIsDeclared) {
  Decoder gpt(kConfig);
  const std::vector<std::int32_t> tokens(17, 0);
  EXPECT_THROW(gpt.forward(tokens, tokens), ContractError);
  EXPECT_THROW(gpt.reserve(1), ContractError);
}

}  // namespace
}  // namespace tessera::nn::decoder_test
