// How the layers of a GPT are divided over the stages of a pipeline.
#include "nn/decoder_stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/error.hpp"

namespace tessera::nn::decoder_stages_test {
namespace {

std::vector<std::int64_t> counts(std::int64_t layers, int stages) {
  std::vector<std::int64_t> all;
  for (const DecoderStage& stage : divide_layers(layers, stages)) { all.push_back(stage.layers); }
  return all;
}

using Counts = std::vector<std::int64_t>;

TEST(GPTStages, GiveRemainingLayersToTheMiddleAndThenToTheFirst) {
  EXPECT_EQ(counts(5, 1), (Counts{5}));
  EXPECT_EQ(counts(5, 2), (Counts{3, 2}));
  EXPECT_EQ(counts(5, 3), (Counts{2, 2, 1}));
  EXPECT_EQ(counts(4, 3), (Counts{1, 2, 1}));
  EXPECT_EQ(counts(6, 4), (Counts{1, 2, 2, 1}));
  EXPECT_EQ(counts(7, 4), (Counts{2, 2, 2, 1}));
  EXPECT_THROW(static_cast<void>(divide_layers(3, 4)), ConfigError);
}

TEST(GPTStages, HaveEveryLayerOnceWithEmbeddingFirstAndHeadLast) {
  for (int stages = 1; stages <= 9; ++stages) {
    for (std::int64_t layers = stages; layers <= 40; ++layers) {
      const std::vector<DecoderStage> all = divide_layers(layers, stages);
      ASSERT_EQ(std::ssize(all), stages);
      std::int64_t next = 0;
      for (int s = 0; s < stages; ++s) {
        const DecoderStage& stage = all[static_cast<std::size_t>(s)];
        ASSERT_EQ(stage.index, s);
        ASSERT_EQ(stage.first_layer, next);
        ASSERT_EQ(stage.embeds, s == 0);
        ASSERT_EQ(stage.predicts, s + 1 == stages);
        next += stage.layers;
      }
      ASSERT_EQ(next, layers);
      const Counts of = counts(layers, stages);
      ASSERT_LE(std::ranges::max(of) - std::ranges::min(of), 1);
      ASSERT_EQ(of.back(), std::ranges::min(of));
    }
  }
}

}  // namespace
}  // namespace tessera::nn::decoder_stages_test
