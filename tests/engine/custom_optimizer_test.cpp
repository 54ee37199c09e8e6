// Custom optimizers, which work on shard views.
#include "tessera/optim/custom_optimizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <thread>

#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::custom_optimizer_test {
namespace {

using ::testing::HasSubstr;

/// The library's SGD with momentum, written as a custom optimizer.
CustomOptimizer own_momentum(float momentum = 0.9F) {
  return {.name = "own momentum",
          .states = 1,
          .lr = 0.05F,
          .weight_decay = 0.01F,
          .update = [momentum](const ShardUpdate& piece) {
            if (*piece.apply == 0) { return; }
            const std::span<float> u = piece.states[0];
            for (std::size_t i = 0; i < piece.weights.size(); ++i) {
              float& w = piece.weights[i];
              u[i] = momentum * u[i] + (piece.gradient_at(i) + piece.weight_decay * w);
              w = w - piece.lr * u[i];
            }
          }};
}
constexpr SGD kBuiltIn{.lr = 0.05F, .momentum = 0.9F, .weight_decay = 0.01F};

TEST(CustomOptimizer, SgdWrittenByAUserGivesTheBitsOfTheBuiltInUnderEveryStrategy) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    for (const int ranks : {1, 2, 3, 4}) {
      ToyRun run;
      run.ranks = ranks;
      run.options.compute = compute;
      run.optimizer = kBuiltIn;
      const ToyOutcome expected = run_toy(run);
      run.optimizer = own_momentum();
      for (const Strategy strategy : all_strategies()) {
        run.options.strategy = strategy;
        EXPECT_EQ(difference(expected, run_toy(run)), "")
            << to_string(strategy) << " " << ranks << " " << to_string(compute);
      }
      run.optimizer = own_momentum(0.5F);
      EXPECT_NE(difference(expected, run_toy(run)), "") << "the user's rule is what runs";
    }
  }
}

TEST(CustomOptimizer, SixteenBitGradientsAndStochasticRoundingMatchTheBuiltIns) {
  ToyRun run;
  run.ranks = 3;
  run.options = {.strategy = Strategy::zero3, .compute = DType::bf16, .gradient = DType::bf16};
  run.optimizer_options.rounding = Rounding::stochastic;
  run.optimizer = kBuiltIn;
  const ToyOutcome expected = run_toy(run);
  run.optimizer = own_momentum();
  EXPECT_EQ(difference(expected, run_toy(run)), "");
}

// Work enqueued before the update, here the gradient, is done when the update runs.
TEST(CustomOptimizer, RunsInStreamOrderOnAComputeStreamOfItsOwn) {
  std::thread::id updater;
  float seen = 0.0F;
  const CustomOptimizer look{.name = "look", .update = [&](const ShardUpdate& piece) {
                               updater = std::this_thread::get_id();
                               seen = piece.gradient_at(0);
                             }};
  run_ranks(1,
            [&](World& world) {
              ShardedModel model{world};
              const Unit unit = model.add_unit("unit", {{"w", {64}}});
              model.materialize(init::constant(1.0F));
              model.optimize_with(look);
              (void)model.forward(unit);
              {
                const auto scope = model.backward(unit);
                const std::vector<float> values(64, 0.5F);
                world.device().copy_in(scope.grad("w").data(), values.data(), 64 * sizeof(float),
                                       scope.stream());
                scope.stream().wait();
              }
              model.step();
              (void)model.report();
              EXPECT_NE(updater, std::this_thread::get_id());
            },
            {.testing = {.compute_stream = ComputeStream::worker}});
  EXPECT_EQ(seen, 0.5F);
}

// Over all ranks, each step updates every element of every trainable parameter once, and no gaps.
TEST(CustomOptimizer, PiecesCoverEveryTrainableParameterOnce) {
  std::mutex mutex;
  std::map<std::string, std::vector<int>> seen;
  const CustomOptimizer count{
      .name = "count", .states = 2, .update = [&](const ShardUpdate& piece) {
        const std::lock_guard lock{mutex};
        EXPECT_EQ(piece.states.size(), 2U);
        EXPECT_EQ(piece.states[1].size(), piece.weights.size());
        EXPECT_EQ(*piece.updates, 1);
        auto& counts = seen[piece.parameter->full_name()];
        counts.resize(static_cast<std::size_t>(piece.parameter->shape.elems()));
        for (std::size_t i = 0; i < piece.weights.size(); ++i) {
          ++counts[static_cast<std::size_t>(piece.first) + i];
        }
      }};
  for (const int ranks : {1, 3, 8}) {
    seen.clear();
    run_ranks(ranks, [&](World& world) {
      ToyModel toy{world, {.strategy = Strategy::zero3}, {}};
      toy.model().optimize_with(count);
      (void)toy.forward_backward(0, 2);
      toy.model().step();
    });
    EXPECT_EQ(seen.size(), 8U);  // the table, three weights and biases, the head's bias
    for (const auto& [name, counts] : seen) {
      EXPECT_THAT(counts, ::testing::Each(1)) << name;
      EXPECT_THAT(name, ::testing::Not(HasSubstr("scale"))) << "frozen";
    }
  }
}

TEST(CustomOptimizer, ReceivesTheRateAndDecayOfTheParametersGroup) {
  std::atomic<int> slow = 0;
  const CustomOptimizer look{
      .name = "look", .lr = 0.5F, .weight_decay = 0.25F, .update = [&](const ShardUpdate& piece) {
        const bool bias = piece.parameter->name == "bias";
        EXPECT_EQ(piece.lr, bias ? 0.125F : 0.5F);
        EXPECT_EQ(piece.weight_decay, bias ? 0.0F : 0.25F);
        slow += bias ? 1 : 0;
      }};
  run_ranks(1, [&](World& world) {
    ToyModel toy{world, {}, {}};
    toy.model().optimize_with(
        look, {.groups = {{.name = "biases",
                           .contains = [](const ParameterInfo& p) { return p.name == "bias"; },
                           .lr_scale = 0.25F}}});
    (void)toy.forward_backward(0, 2);
    toy.model().step();
  });
  EXPECT_EQ(slow, 4);
}

TEST(CustomOptimizer, OnASkippedStepTheParametersStay) {
  run_ranks(2, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero2, .compute = DType::bf16}};
    const Unit unit = model.add_unit("unit", {{"w", {100}}});
    model.materialize(init::normal(1, 1.0F));
    model.optimize_with(own_momentum());
    const auto before = exported(model, StateTensor::parameters);
    (void)model.forward(unit);
    {
      const auto scope = model.backward(unit);
      float* const gradient = scope.grad("w");
      gradient[3] = std::numeric_limits<float>::infinity();
    }
    model.step();
    EXPECT_TRUE(model.report().skipped);
    EXPECT_EQ(exported(model, StateTensor::parameters), before);
  });
}

TEST(CustomOptimizer, AnExceptionEndsTheRunWithItsMessage) {
  const CustomOptimizer bad{.name = "bad", .update = [](const ShardUpdate& piece) {
                              throw ContractError{"no rule for " + piece.parameter->name};
                            }};
  ToyRun run;
  run.ranks = 2;
  run.optimizer = bad;
  try {
    (void)run_toy(run);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) { EXPECT_THAT(error.what(), HasSubstr("no rule for table")); }
}

TEST(CustomOptimizer, IsRefusedWithoutNameOrFunctionAndWithBf16Moments) {
  const auto refusal = [](CustomOptimizer custom, OptimizerOptions options = {}) {
    try {
      validate(Optimizer{custom});
      validate(options, Optimizer{custom});
    } catch (const Error& error) { return std::string{error.what()}; }
    return std::string{"accepted"};
  };
  CustomOptimizer custom = own_momentum();
  EXPECT_EQ(refusal(custom), "accepted");
  EXPECT_THAT(refusal(custom, {.moments = MomentFormat::bf16}),
              HasSubstr("'own momentum' keeps its own states"));
  custom.states = -1;
  EXPECT_THAT(refusal(custom), HasSubstr("asks for -1 states"));
  custom.update = nullptr;
  EXPECT_THAT(refusal(custom), HasSubstr("update function of 'own momentum' is empty"));
  custom.name.clear();
  EXPECT_THAT(refusal(custom), HasSubstr("needs a name"));
}

}  // namespace
}  // namespace tessera::test::custom_optimizer_test
