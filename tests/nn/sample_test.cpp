// Generated text depends only on the weights, the prompt and the sampler.
#include "tessera/nn/sample.hpp"

#include <array>

#include "nn/decoder_course.hpp"
#include "support/grouping_locale.hpp"
#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::sample_test {
namespace {

using Draws = std::vector<double>;

/// How often each token is drawn in `count` draws.
Draws frequencies(const Sampler& sampler, const std::vector<float>& logits, std::int64_t count) {
  Draws share(logits.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::size_t>(sampler.draw(logits, i % 7, i / 7));
    share[token] += 1.0 / static_cast<double>(count);
  }
  return share;
}

void expect_shares(const Draws& actual, const Draws& expected, std::int64_t count) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double p = expected[i];
    // Five deviations of a count.
    // bound: five standard deviations; 1e-9 for those that are 0
    EXPECT_NEAR(actual[i], p, 5.0 * std::sqrt(p * (1.0 - p) / static_cast<double>(count)) + 1e-9)
        << i;
  }
}

constexpr std::int64_t kCount = 20'000;

// Weights 1 : 2 : 4 : 1.
const std::vector<float> kLogits{0.0F, std::log(2.0F), std::log(4.0F), 0.0F};

TEST(Sampler, DrawsAsOftenAsTheSoftmaxSays) {
  expect_shares(frequencies({}, kLogits, kCount), {0.125, 0.25, 0.5, 0.125}, kCount);
}

// At temperature 1/2 weights are squared.
TEST(Sampler, TemperatureSharpens) {
  const double all = 1 + 4 + 16 + 1;
  expect_shares(frequencies({.temperature = 0.5F}, kLogits, kCount),
                {1 / all, 4 / all, 16 / all, 1 / all}, kCount);
}

TEST(Sampler, TemperatureZeroTakesTheMostLikelyAndOfEqualsTheFirst) {
  // bound: 50 fractions are added in fp64
  EXPECT_NEAR(frequencies({.temperature = 0.0F}, kLogits, 50)[2], 1.0, 1e-9);
  const std::vector<float> equal{1.0F, 3.0F, 3.0F};
  EXPECT_EQ((Sampler{.temperature = 0.0F}.draw(equal, 0, 0)), 1);
}

TEST(Sampler, TopKKeepsTheKMostLikely) {
  expect_shares(frequencies({.top_k = 2}, kLogits, kCount), {0.0, 1.0 / 3, 2.0 / 3, 0.0}, kCount);
  expect_shares(frequencies({.top_k = 3}, kLogits, kCount), {1.0 / 7, 2.0 / 7, 4.0 / 7, 0.0},
                kCount);
  EXPECT_EQ(frequencies({.top_k = 100}, kLogits, 100), frequencies({}, kLogits, 100));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  expect_shares(frequencies({.top_p = 0.5F}, kLogits, kCount), {0.0, 0.0, 1.0, 0.0}, kCount);
  expect_shares(frequencies({.top_p = 0.6F}, kLogits, kCount), {0.0, 1.0 / 3, 2.0 / 3, 0.0},
                kCount);
}

TEST(Sampler, DrawsDependOnSeedSampleAndPosition) {
  const std::vector<float> equal(1000, 0.0F);
  const Sampler sampler;
  const std::int32_t drawn = sampler.draw(equal, 3, 4);
  EXPECT_EQ(sampler.draw(equal, 3, 4), drawn);
  EXPECT_NE(sampler.draw(equal, 4, 4), drawn);
  EXPECT_NE(sampler.draw(equal, 3, 5), drawn);
  EXPECT_NE((Sampler{.seed = 2}.draw(equal, 3, 4)), drawn);
}

TEST(Sampler, RefusesInvalidDistributions) {
  EXPECT_THROW(Sampler{.temperature = -1.0F}.validate(), ConfigError);
  EXPECT_THROW(Sampler{.temperature = std::nanf("")}.validate(), ConfigError);
  EXPECT_THROW(Sampler{.top_k = -1}.validate(), ConfigError);
  EXPECT_THROW(Sampler{.top_p = 0.0F}.validate(), ConfigError);
  EXPECT_THROW(Sampler{.top_p = 1.5F}.validate(), ConfigError);
  EXPECT_THROW((void)Sampler{}.draw(std::vector<float>{1.0F, std::nanf("")}, 0, 0), Error);
}

using Texts = std::vector<std::vector<std::int32_t>>;

Texts texts(const Generation& generation, Strategy strategy, int ranks,
            const std::vector<MeshDim>& mesh = {}) {
  Texts all;
  run_ranks(ranks, [&](World& world) {
    auto gpt = shard(Decoder(test::kCourseConfig), world,
                     {.strategy = strategy, .purpose = Purpose::inference, .mesh = mesh});
    gpt.materialize(init::normal(/*seed=*/9, /*stddev=*/0.3F));
    const Texts own = generate(gpt.module(), world, generation);
    if (world.rank() == 0) { all = own; }
  });
  return all;
}

// Longer than the context, so that the window moves.
TEST(Generate, GivesTheSameTextOnAnyRanksUnderAnyStrategy) {
  const Generation generation{.prompt = {1, 2, 3}, .tokens = 14, .samples = 3};
  const Texts expected = texts(generation, Strategy::ddp, 1);
  ASSERT_EQ(expected.size(), 3U);
  for (const auto& text : expected) { EXPECT_EQ(text.size(), 14U); }
  EXPECT_NE(expected[0], expected[1]);
  for (const Strategy strategy : all_strategies()) {
    for (const int ranks : {2, 4}) {
      EXPECT_EQ(texts(generation, strategy, ranks), expected) << to_string(strategy) << ranks;
    }
  }
}

// Ranks along pipe and tensor compute one sample together: three samples take two rounds here.
TEST(Generate, GivesTheSameTextOnAnyMesh) {
  const Generation generation{.prompt = {1, 2, 3}, .tokens = 14, .samples = 3};
  const Texts expected = texts(generation, Strategy::ddp, 1);
  for (const auto& [pipe, shard, tensor] :
       {std::array{2, 2, 1}, {1, 2, 2}, {2, 1, 2}, {1, 1, 3}, {2, 1, 1}}) {
    const std::vector<MeshDim> mesh{{"pipe", pipe}, {"shard", shard}, {"tensor", tensor}};
    EXPECT_EQ(texts(generation, Strategy::zero3, pipe * shard * tensor, mesh), expected)
        << MeshShape{mesh}.to_string();
  }
}

TEST(Generate, GreedyTextFollowsTheLogits) {
  run_ranks(1, [](World& world) {
    auto gpt = shard(Decoder(test::kCourseConfig), world, {.purpose = Purpose::inference});
    gpt.materialize(init::normal(9, 0.3F));
    const Generation generation{.prompt = {5}, .tokens = 3, .sampler = {.temperature = 0.0F}};
    const Texts text = generate(gpt.module(), world, generation);
    std::vector<std::int32_t> all{5};
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> logits = gpt.module().next_logits(all);
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      all.push_back(static_cast<std::int32_t>(best));
    }
    EXPECT_EQ(text, (Texts{{all.begin() + 1, all.end()}}));
  });
}

// A model in training, between its steps.
TEST(Generate, WorksDuringTraining) {
  const test::CourseOptions options{.model = {.strategy = Strategy::zero2}, .ranks = 2};
  const Generation generation{.prompt = {1}, .tokens = 4, .samples = 2};
  const auto between = [&](Sharded<Decoder>& gpt) {
    EXPECT_EQ(generate(gpt.module(), gpt.model().world(), generation).size(), 2U);
  };
  EXPECT_EQ(train_course(options, between), train_course(options));
}

// A rank's tokens reach the others as text.
TEST(Generate, DoesNotDependOnTheLocale) {
  const Generation generation{.prompt = {1, 2, 3}, .tokens = 5, .samples = 2};
  const Texts expected = texts(generation, Strategy::zero3, 2);
  const test::GroupingLocale french;
  EXPECT_EQ(texts(generation, Strategy::zero3, 2), expected);
}

TEST(Generate, RefusesImpossibleValues) {
  const auto refused = [](const Generation& generation) {
    EXPECT_THROW((void)texts(generation, Strategy::ddp, 1), ConfigError);
  };
  refused({.prompt = {}, .tokens = 1});
  refused({.prompt = {37}, .tokens = 1});
  refused({.prompt = {1}, .tokens = 0});
  refused({.prompt = {1}, .tokens = 1, .samples = 0});
  refused({.prompt = {1}, .tokens = 1, .sampler = {.top_p = 2.0F}});
}

}  // namespace
}  // namespace tessera::nn::sample_test
