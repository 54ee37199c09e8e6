#include "tessera/nn/gpt_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/reference_gpt.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/gpt.hpp"

namespace tessera::nn::gpt_config_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Published sizes: Radford et al. 2019, and the parameter counts of Hugging Face's files.
TEST(GPTConfig, PresetsHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(GPTConfig::preset("gpt2").parameter_elems(), 124'439'808);
  EXPECT_EQ(GPTConfig::preset("gpt2-medium").parameter_elems(), 354'823'168);
  EXPECT_EQ(GPTConfig::preset("gpt2-large").parameter_elems(), 774'030'080);
  EXPECT_EQ(GPTConfig::preset("gpt2-xl").parameter_elems(), 1'557'611'200);
  EXPECT_EQ(GPTConfig::preset("gpt-nano"), GPTConfig{});
  for (const auto name : GPTConfig::preset_names()) {
    EXPECT_NO_THROW(GPTConfig::preset(name).validate()) << name;
  }
}

TEST(GPTConfig, ParameterCountIsTheSumOverTheTensors) {
  const GPTConfig config{.layers = 3, .hidden = 36, .heads = 3, .vocab = 101, .seq = 17};
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : reference::gpt_zeros(config)) { sum += tensor.size(); }
  EXPECT_EQ(config.parameter_elems(), sum);
}

TEST(GPTConfig, AnUnknownPresetIsAnsweredWithTheKnownOnes) {
  EXPECT_THAT([] { static_cast<void>(GPTConfig::preset("gpt3")); },
              ThrowsMessage<ConfigError>(
                  testing::AllOf(HasSubstr("gpt3"), HasSubstr("gpt-nano"), HasSubstr("gpt2-xl"))));
}

TEST(GPTConfig, HeadsThatDoNotDivideTheHiddenSizeAreRefusedWithOneThatWorks) {
  const GPTConfig config{.hidden = 128, .heads = 6};
  EXPECT_THAT([&] { config.validate(); },
              ThrowsMessage<ConfigError>(
                  testing::AllOf(HasSubstr("6 heads"), HasSubstr("128"), HasSubstr("132"))));
}

TEST(GPTConfig, EverySizeMustBeAtLeastOneAndIsNamed) {
  const auto refuses = [](const GPTConfig& config, const char* what) {
    EXPECT_THAT([&] { config.validate(); }, ThrowsMessage<ConfigError>(HasSubstr(what)));
    EXPECT_THROW(GPT{config}, ConfigError) << what;
  };
  refuses({.layers = 0}, "layers is 0");
  refuses({.hidden = -1}, "hidden is -1");
  refuses({.heads = 0}, "heads is 0");
  refuses({.vocab = 0}, "vocab is 0");
  refuses({.seq = 0}, "seq is 0");
  refuses({.vocab = std::int64_t{1} << 31}, "vocab is 2147483648");
}

TEST(GPTConfig, TheLargestAllowedSizesDoNotOverflowTheCount) {
  const GPTConfig largest{.layers = 1 << 16,
                          .hidden = 1 << 20,
                          .heads = 1,
                          .vocab = (std::int64_t{1} << 31) - 1,
                          .seq = 1 << 30};
  EXPECT_NO_THROW(largest.validate());
  EXPECT_GT(largest.parameter_elems(), std::int64_t{1} << 59);
}

}  // namespace
}  // namespace tessera::nn::gpt_config_test
