#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/tessera.hpp"

// Ranks with unequal numbers of samples (some with none) and units that only some ranks use train
// like one rank with all samples. docs/recipes.md shows how.
namespace tessera::test::unequal_ranks_test {
namespace {

constexpr std::int64_t kWidth = 5;
constexpr std::size_t kExperts = 2;
constexpr std::int64_t kMostSamples = 8;  // of all ranks in a step

/// Sample numbers of each rank in each step: [rank][step].
using Samples = std::vector<std::vector<std::vector<int>>>;

float input(std::int64_t sample, std::int64_t k) {
  return static_cast<float>((sample * 7 + k * 3) % 11 - 5) / 8.0F;
}
float target(int sample) {
  return static_cast<float>(sample % 5 - 2) / 4.0F;
}

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> parameters;
};

/// Trains y = x w, with one of two experts chosen by the sample's number.
class Trainer {
 public:
  Trainer(World& world, const ModelOptions& options) : world_{world}, model_{world, options} {
    for (std::size_t e = 0; e < kExperts; ++e) {
      experts_.push_back(model_.add_unit("expert." + std::to_string(e), {{"w", {kWidth}}}));
    }
    model_.materialize(init::normal(3, 0.5F));
    model_.optimize_with(SGD{.lr = 0.25F, .momentum = 0.5F});
  }

  /// Ranks may have different numbers of steps; all end after the same step.
  Outcome train(const std::vector<std::vector<int>>& samples) {
    Outcome outcome;
    World& world = world_;
    ShardedModel& model = model_;
    for (std::size_t step = 0;; ++step) {
      const std::vector<int> mine = step < samples.size() ? samples[step] : std::vector<int>{};
      const auto rows = static_cast<double>(mine.size());
      const double all_rows = world.sum(rows);
      if (all_rows == 0) { break; }  // on every rank in the same step
      // `step` averages over ranks: a rank's mean counts by its share of the samples.
      const double weight = world.size() * rows / all_rows;
      const double loss = weight * forward_backward(mine, weight);
      model.step(&loss);
      outcome.losses.push_back(model.report().loss);
    }
    outcome.parameters = exported(model, StateTensor::parameters);
    return outcome;
  }

 private:
  /// Returns the mean loss over `samples` and adds `weight` times its gradient. Every rank opens
  /// every expert.
  double forward_backward(const std::vector<int>& samples, double weight) {
    std::vector<float> y(samples.size());
    for (std::size_t e = 0; e < kExperts; ++e) {
      const auto p = model_.forward(experts_[e]);
      const float* const w = p["w"];
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (expert_of(samples[i]) != e) { continue; }
        for (std::int64_t k = 0; k < kWidth; ++k) { y[i] += input(samples[i], k) * w[k]; }
      }
    }
    double loss = 0;
    const auto count = static_cast<double>(samples.size());
    for (std::size_t e = kExperts; e-- > 0;) {
      const auto g = model_.backward(experts_[e]);
      float* const dw = g.grad("w");
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (expert_of(samples[i]) != e) { continue; }
        const double error = y[i] - target(samples[i]);
        loss += error * error / count;
        const auto dy = static_cast<float>(weight * 2 * error / count);
        for (std::int64_t k = 0; k < kWidth; ++k) { dw[k] += dy * input(samples[i], k); }
      }
    }
    return loss;
  }
  static std::size_t expert_of(int sample) { return static_cast<std::size_t>(sample) % kExperts; }

  World& world_;
  ShardedModel model_;
  std::vector<Unit> experts_;
};

Outcome train(const Samples& samples, const ModelOptions& options) {
  Outcome outcome;
  run_ranks(static_cast<int>(samples.size()), [&](World& world) {
    Trainer trainer{world, options};
    const Outcome mine = trainer.train(samples[static_cast<std::size_t>(world.rank())]);
    if (world.rank() == 0) { outcome = mine; }
  });
  return outcome;
}

/// The same steps with all of a step's samples on one rank.
Samples on_one_rank(const Samples& samples) {
  Samples one(1);
  for (const auto& steps : samples) {
    if (one[0].size() < steps.size()) { one[0].resize(steps.size()); }
    for (std::size_t step = 0; step < steps.size(); ++step) {
      one[0][step].insert(one[0][step].end(), steps[step].begin(), steps[step].end());
    }
  }
  return one;
}

void expect_the_training_of_one_rank(const Samples& samples) {
  const Outcome one = train(on_one_rank(samples), {});
  ASSERT_GT(one.losses.size(), 3U);
  // In a step: a sum of kWidth products, the slope, a sum over the samples, and the update.
  const double roundings = static_cast<double>(one.losses.size()) *
                           (sum_roundings(kWidth) + sum_roundings(kMostSamples) + 12);
  const double within = chain_difference(roundings) * one.losses[0];
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    const Outcome several = train(samples, {.strategy = strategy,
                                            .shard_group = strategy == Strategy::hybrid ? 2 : 0,
                                            .checks = Checks::strict});
    ASSERT_EQ(several.losses.size(), one.losses.size());
    for (std::size_t step = 0; step < one.losses.size(); ++step) {
      EXPECT_NEAR(several.losses[step], one.losses[step], within) << step;
    }
    for (const auto& [name, values] : one.parameters) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(several.parameters.at(name)[i], values[i], within) << name << " " << i;
      }
    }
  }
}

TEST(UnequalRanks, WithUnequalNumbersOfSamplesTrainAsOneRankWithAllOfThem) {
  expect_the_training_of_one_rank({
      {{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9, 10}, {11}},
      {{12, 13}, {14}, {15, 16}},
      {{17, 18, 19}, {}, {20}},  // no samples in one step
      {},                        // no samples at all
  });
}

TEST(UnequalRanks, ThatUseDifferentUnitsTrainAsOneRankThatUsesAll) {
  expect_the_training_of_one_rank({
      {{0, 2}, {4, 6}, {1, 3}, {8}},
      {{5, 7}, {9, 11}, {10, 12}, {13}},
      {{14}, {15}, {16}, {17}},
      {{18, 19}, {20, 22}, {21, 23}, {24, 26}},
  });
}

}  // namespace
}  // namespace tessera::test::unequal_ranks_test
