#include "tessera/nn/decoder_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "support/decoder_configs.hpp"
#include "support/reference_gpt.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/decoder.hpp"

namespace tessera::nn::decoder_config_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Published sizes: Radford et al. 2019, and the parameter counts of Hugging Face's files (metadata
// of the models' safetensors).
TEST(DecoderConfig, PresetsHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(DecoderConfig::preset("gpt2").parameter_elems(), 124'439'808);
  EXPECT_EQ(DecoderConfig::preset("gpt2-medium").parameter_elems(), 354'823'168);
  EXPECT_EQ(DecoderConfig::preset("gpt2-large").parameter_elems(), 774'030'080);
  EXPECT_EQ(DecoderConfig::preset("gpt2-xl").parameter_elems(), 1'557'611'200);
  EXPECT_EQ(DecoderConfig::preset("llama2-7b").parameter_elems(), 6'738'415'616);
  EXPECT_EQ(DecoderConfig::preset("llama3-8b").parameter_elems(), 8'030'261'248);
  EXPECT_EQ(DecoderConfig::preset("llama3-70b").parameter_elems(), 70'553'706'496);
  EXPECT_EQ(DecoderConfig::preset("mistral-7b").parameter_elems(), 7'241'732'096);
  EXPECT_EQ(DecoderConfig::preset("qwen3-0.6b").parameter_elems(), 596'049'920);
  EXPECT_EQ(DecoderConfig::preset("qwen3-1.7b").parameter_elems(), 1'720'574'976);
  EXPECT_EQ(DecoderConfig::preset("qwen3-4b").parameter_elems(), 4'022'468'096);
  EXPECT_EQ(DecoderConfig::preset("qwen3-8b").parameter_elems(), 8'190'735'360);
  EXPECT_EQ(DecoderConfig::preset("qwen3-14b").parameter_elems(), 14'768'307'200);
  EXPECT_EQ(DecoderConfig::preset("qwen3-32b").parameter_elems(), 32'762'123'264);
  EXPECT_EQ(DecoderConfig::preset("gpt-nano"), DecoderConfig{});
  for (const auto name : DecoderConfig::preset_names()) {
    EXPECT_NO_THROW(DecoderConfig::preset(name).validate()) << name;
  }
}

TEST(DecoderConfig, ParameterCountIsTheSumOverTheTensors) {
  const auto sum_of = [](const DecoderConfig& config) {
    std::int64_t sum = 0;
    for (const auto& [name, tensor] : reference::gpt_zeros(config)) { sum += tensor.size(); }
    return sum;
  };
  const DecoderConfig gpt{.layers = 3, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};
  EXPECT_EQ(gpt.parameter_elems(), sum_of(gpt));
  for (const auto& [name, config] : test::decoder_configs(3, 36, 101, 17)) {
    EXPECT_EQ(config.parameter_elems(), sum_of(config)) << name;
  }
}

TEST(DecoderConfig, AnUnknownPresetIsAnsweredWithTheKnownOnes) {
  EXPECT_THAT([] { static_cast<void>(DecoderConfig::preset("gpt3")); },
              ThrowsMessage<ConfigError>(
                  testing::AllOf(HasSubstr("gpt3"), HasSubstr("gpt-nano"), HasSubstr("gpt2-xl"))));
}

TEST(DecoderConfig, HeadsThatDoNotDivideTheHiddenSizeAreRefusedWithOneThatWorks) {
  const DecoderConfig config{.hidden = 128, .heads = 6};
  EXPECT_THAT([&] { config.validate(); },
              ThrowsMessage<ConfigError>(
                  testing::AllOf(HasSubstr("6 heads"), HasSubstr("128"), HasSubstr("132"))));
}

TEST(DecoderConfig, EverySizeMustBeAtLeastOneAndIsNamed) {
  const auto refuses = [](const DecoderConfig& config, const char* what) {
    EXPECT_THAT([&] { config.validate(); }, ThrowsMessage<ConfigError>(HasSubstr(what)));
    EXPECT_THROW(Decoder{config}, ConfigError) << what;
  };
  refuses({.layers = 0}, "layers is 0");
  refuses({.hidden = -1}, "hidden is -1");
  refuses({.heads = 0}, "heads is 0");
  refuses({.vocab = 0}, "vocab is 0");
  refuses({.seq = 0}, "seq is 0");
  refuses({.vocab = std::int64_t{1} << 31}, "vocab is 2147483648");
}

TEST(DecoderConfig, TheLargestAllowedSizesDoNotOverflowTheCount) {
  const DecoderConfig largest{.layers = 1 << 16,
                              .hidden = 1 << 20,
                              .heads = 1,
                              .vocab = (std::int64_t{1} << 31) - 1,
                              .seq = 1 << 30};
  EXPECT_NO_THROW(largest.validate());
  EXPECT_GT(largest.parameter_elems(), std::int64_t{1} << 59);
}

struct Refused {
  const char* text;
  void (*change)(DecoderConfig& config);
};

TEST(DecoderConfig, PartsThatDoNotFitEachOtherAreRefusedByName) {
  const std::array<Refused, 16> all{{
      {"4 heads of keys do not divide 6 query heads", [](auto& c) { c.kv_heads = 4; }},
      {"kv_heads is 7: give a number from 1 to 6", [](auto& c) { c.kv_heads = 7; }},
      {"kv_heads is -1", [](auto& c) { c.kv_heads = -1; }},
      {"3 values of a head of 4 cannot be rotated", [](auto& c) { c.rotary_elems = 3; }},
      {"6 values of a head of 4 cannot be rotated", [](auto& c) { c.rotary_elems = 6; }},
      {"-2 values of a head of 4 cannot be rotated", [](auto& c) { c.rotary_elems = -2; }},
      {"rotary_base is -1", [](auto& c) { c.rotary_base = -1.0; }},
      {"rotary_base is 1e-300", [](auto& c) { c.rotary_base = 1e-300; }},
      {"all must be above 0", [](auto& c) { c.rotary_scaling = {.factor = 8.0}; }},
      {"have no effect with learned positions",
       [](auto& c) { c.positions = PositionKind::learned; }},
      {"mlp is 9: give one of its enumerators, 0 to 3",
       [](auto& c) { c.mlp = static_cast<MLPKind>(9); }},
      {"the low factor below the high one",
       [](auto& c) { c.rotary_scaling.low_frequency_factor = 4.0; }},
      {"norm_eps is nan", [](auto& c) { c.norm_eps = std::nanf(""); }},
      {"norm_eps is 1e-06: layer norms add 1e-5",
       [](auto& c) {
         c.norm = NormKind::layer_norm;
         c.norm_eps = 1e-6F;
       }},
      {"attention_scale is -1", [](auto& c) { c.attention_scale = -1.0F; }},
      {"a window of -2 tokens from layer 0 on", [](auto& c) { c.window = -2; }},
  }};
  for (const auto& [text, change] : all) {
    DecoderConfig config = test::decoder_configs(3, 36, 101, 17)[0].config;
    EXPECT_NO_THROW(config.validate());
    change(config);
    EXPECT_THAT([&] { config.validate(); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  }
}

}  // namespace
}  // namespace tessera::nn::decoder_config_test
