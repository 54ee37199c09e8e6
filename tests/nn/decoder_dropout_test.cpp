// Dropout depends only on the seed, the step and the sample's place in the global batch.
#include <gmock/gmock.h>

#include "nn/decoder_course.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::decoder_dropout_test {
namespace {

using test::CourseOptions;
using test::kCourseConfig;

const test::GPTBounds kWithin = test::course_bounds({});

TEST(GPTDropout, IsTheSameForOneTwoAndFourRanks) {
  CourseOptions options{.gpt = {.dropout = 0.2F}};
  const test::Course alone = train_course(options);
  for (const int ranks : {2, 4}) {
    options.ranks = ranks;
    const test::Course several = train_course(options);
    for (std::size_t step = 0; step < alone.losses.size(); ++step) {
      EXPECT_NEAR(several.losses[step], alone.losses[step], kWithin.later_loss * alone.losses[0])
          << ranks << ", " << step;
    }
    EXPECT_NEAR(several.norms[0] / alone.norms[0], 1.0, kWithin.gradient);
  }
}

TEST(GPTDropout, OfFourMicroBatchesOfOneIsThatOfOneOfFour) {
  CourseOptions options{.gpt = {.dropout = 0.2F}};
  const test::Course whole = train_course(options);
  options.model.accumulate = 4;
  const test::Course cut = train_course(options);
  for (std::size_t step = 0; step < whole.losses.size(); ++step) {
    EXPECT_NEAR(cut.losses[step], whole.losses[step], kWithin.later_loss * whole.losses[0]) << step;
  }
  EXPECT_NEAR(cut.norms[0] / whole.norms[0], 1.0, kWithin.gradient);
}

TEST(GPTDropout, HasOtherMasksInEveryStepAndForEverySeed) {
  CourseOptions options{.gpt = {.dropout = 0.3F}, .steps = 1, .lr = 0.0F};
  const double first = train_course(options).losses[0];
  options.gpt.dropout_seed = 2;
  EXPECT_GT(std::abs(train_course(options).losses[0] - first), kWithin.loss * first);
  // The same tokens and weights, three times.
  run_ranks(1, [&](World& world) {
    auto gpt = shard(Decoder(kCourseConfig, {.dropout = 0.3F}), world);
    gpt.materialize(3);
    gpt.optimize_with(SGD{.lr = 0.0F});
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      course_step(gpt, world, options, 0);
      losses.push_back(gpt.report().loss);
    }
    EXPECT_EQ(losses[0], first);
    EXPECT_GT(std::abs(losses[1] - losses[0]), kWithin.loss * first);
    EXPECT_GT(std::abs(losses[2] - losses[1]), kWithin.loss * first);
  });
}

TEST(GPTDropout, OfProbabilityZeroIsFreeAndOtherwiseNeedsOneStream) {
  run_ranks(1, [](World& world) {
    const auto bytes = [&](float p) {
      return Decoder::bytes_needed(kCourseConfig, {.dropout = p}, 4, world);
    };
    const std::size_t stream = 4 * 11 * 20 * sizeof(float);
    EXPECT_EQ(bytes(0.1F).activations, bytes(0.0F).activations);
    EXPECT_EQ(bytes(0.1F).workspace,
              bytes(0.0F).workspace + Arena::need(6 * stream) - Arena::need(5 * stream));
  });
}

TEST(GPTDropout, IsAProbabilityBelowOne) {
  for (const float p : {1.0F, -0.1F, std::nanf("")}) {
    EXPECT_THROW(Decoder(kCourseConfig, {.dropout = p}), ConfigError) << p;
  }
}

}  // namespace
}  // namespace tessera::nn::decoder_dropout_test
