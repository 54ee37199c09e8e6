// Micro-batches: several small ones train as one large one.
#include <string>
#include <tuple>

#include "nn/nn_support.hpp"
#include "support/gpt_rounding.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::decoder_accumulation_test {
namespace {

using test::Tensors;

constexpr DecoderConfig kConfig{.layers = 2, .hidden = 24, .heads = 2, .vocab = 53, .seq = 11};
constexpr int kRanks = 2;
constexpr int kSequences = 4;  // per rank and step
constexpr int kSteps = 50;

struct Course {
  std::vector<double> losses;
  Tensors first_gradients;
  double first_norm = 0.0;
  bool clipped = false;
};

/// Part `part` of `parts` of the tokens of `rank` in a step.
std::vector<std::int32_t> tokens_of(int step, int rank, int part, int parts, std::uint32_t which) {
  const auto all = test::random_tokens(kRanks * kSequences * kConfig.seq, kConfig.vocab,
                                       static_cast<std::uint32_t>(2 * step) + which);
  const auto count = std::ssize(all) / (std::int64_t{kRanks} * parts);
  const auto first = all.begin() + (rank * parts + part) * count;
  return {first, first + count};
}

Course train(const ModelOptions& options, float clip_norm) {
  Course course;
  run_ranks(kRanks, [&](World& world) {
    auto gpt = shard(Decoder(kConfig), world, options);
    gpt.materialize(1);
    gpt.optimize_with(AdamW{.lr = 1e-3F}, {.clip_norm = clip_norm});
    for (int step = 0; step < kSteps; ++step) {
      for (int part = 0; part < options.accumulate; ++part) {
        gpt.forward_backward(tokens_of(step, world.rank(), part, options.accumulate, 0),
                             tokens_of(step, world.rank(), part, options.accumulate, 1));
      }
      Tensors gradients;
      if (step == 0) {
        gradients = test::state_of(gpt.model(), StateTensor::gradients, gpt2_weight_name);
      }
      gpt.step();
      if (world.rank() != 0) { continue; }
      const StepReport report = gpt.report();
      course.losses.push_back(report.loss);
      course.clipped = course.clipped || report.clip_coefficient < 1.0F;
      if (step > 0) { continue; }
      course.first_gradients = std::move(gradients);
      course.first_norm = report.grad_norm;
    }
  });
  return course;
}

using Case = std::tuple<Strategy, AccumulateMode>;
class GPTAccumulation : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, GPTAccumulation,
                         testing::Combine(testing::ValuesIn(all_strategies()),
                                          testing::Values(AccumulateMode::every,
                                                          AccumulateMode::deferred)),
                         [](const auto& tested) {
                           return std::string{to_string(std::get<0>(tested.param))} + "_" +
                                  std::string{to_string(std::get<1>(tested.param))};
                         });

TEST_P(GPTAccumulation, FourMicroBatchesOfOneTrainAsOneOfFourWithAndWithoutClipping) {
  const auto [strategy, mode] = GetParam();
  for (const float clip_norm : {0.0F, 0.5F}) {
    SCOPED_TRACE(testing::Message() << "clipped to " << clip_norm);
    const Course one = train({.strategy = strategy}, clip_norm);
    const Course four =
        train({.strategy = strategy, .accumulate = kSequences, .accumulate_mode = mode}, clip_norm);
    ASSERT_EQ(four.losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(one.clipped, clip_norm > 0.0F);
    EXPECT_EQ(four.clipped, one.clipped);
    const auto within = test::between_runs(kConfig, kRanks * kSequences * kConfig.seq);
    test::expect_close(four.first_gradients, one.first_gradients, within.gradient);
    EXPECT_NEAR(four.first_norm / one.first_norm, 1.0, within.gradient);
    for (std::size_t step = 0; step < one.losses.size(); ++step) {
      EXPECT_NEAR(four.losses[step], one.losses[step], within.later_loss * one.losses[0])
          << "step " << step + 1;
    }
  }
}

}  // namespace
}  // namespace tessera::nn::decoder_accumulation_test
