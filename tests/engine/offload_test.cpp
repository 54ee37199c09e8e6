// What an offloaded optimizer refuses, and what is done between its steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::offload_test {
namespace {

using ::testing::HasSubstr;

/// Of a model of two units of 100 elements, the second frozen if told; "accepted" if none.
std::string refusal(const ModelOptions& options, const Optimizer& optimizer = AdamW{}) {
  std::string text = "accepted";
  run_ranks(1, [&](World& world) {
    try {
      ShardedModel model{world, options};
      (void)model.add_unit("a", {{"w", {100}}});
      (void)model.add_unit("b", {{"w", {100}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(optimizer);
    } catch (const ConfigError& error) { text = error.what(); }
  });
  return text;
}

TEST(Offload, IsRefusedWhereItHasNoEffect) {
  const ModelOptions offloaded{.offload = Offload::optimizer};
  EXPECT_EQ(refusal(offloaded), "accepted");
  EXPECT_THAT(refusal({.offload_keep = 0.5F}), HasSubstr("`offload_keep` has no effect"));
  EXPECT_THAT(refusal({.purpose = Purpose::inference, .offload = Offload::optimizer}),
              HasSubstr("`offload` has no effect on a model for inference"));
  const SGD plain{.momentum = 0.0F};
  EXPECT_THAT(refusal(offloaded, plain), HasSubstr("keeps no state"));
  EXPECT_EQ(refusal({.compute = DType::bf16, .offload = Offload::optimizer}, plain), "accepted");
  EXPECT_EQ(refusal(offloaded, SGD{.momentum = 0.9F}), "accepted");
  ModelOptions remainders{.compute = DType::bf16, .offload = Offload::optimizer};
  remainders.master_weights = MasterWeights::remainder;
  EXPECT_THAT(refusal(remainders), HasSubstr("leave `master_weights` at fp32"));
}

TEST(Offload, RefusesAFractionThatKeepsNothingOrAll) {
  const auto keeping = [](float keep) {
    return refusal({.offload = Offload::optimizer, .offload_keep = keep});
  };
  EXPECT_THAT(keeping(0.4F), HasSubstr("the last unit has 128 of the 256 elements"));
  EXPECT_EQ(keeping(0.5F), "accepted");
  for (const float none : {1.0F, -0.1F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(keeping(none), HasSubstr("from 0 to below 1"));
  }
}

// Right after the step, while the host still updates.
TEST(Offload, EvaluationsAndExportsSeeTheUpdatedParameters) {
  for (const Strategy strategy : all_strategies()) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const auto train = [&](Offload offload) {
        std::vector<double> seen;
        const WorldOptions late{
            .delays = DelayInjection{.seed = 3, .longest = std::chrono::microseconds{500}}};
        run_ranks(
            2,
            [&](World& world) {
              ToyModel toy{world,
                           {.strategy = strategy,
                            .shard_group = strategy == Strategy::hybrid ? 1 : 0,
                            .compute = compute,
                            .offload = offload},
                           {}};
              toy.model().optimize_with(AdamW{.lr = 0.05F});
              const auto note = [&](double value) {
                if (world.rank() == 0) { seen.push_back(value); }
              };
              for (int step = 0; step < 4; ++step) {
                const double loss = toy.forward_backward(2 * step + world.rank(), 1);
                toy.model().step(&loss);
                if (step % 2 == 0) {
                  auto evaluation = toy.model().evaluate();
                  note(toy.forward(0, 3));
                  evaluation.end_pass();
                  note(toy.forward(0, 3));
                } else {
                  for (const auto& [name, values] :
                       exported(toy.model(), StateTensor::parameters)) {
                    note(values.front());
                  }
                }
              }
              toy.model().export_masters(
                  [&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
                    note(values.back());
                  });
            },
            late);
        return seen;
      };
      EXPECT_EQ(train(Offload::none), train(Offload::optimizer)) << to_string(strategy);
    }
  }
}

// A masters' first values are the initializer's in full, not rounded ones.
TEST(Offload, MastersStartFromTheInitializerInFull) {
  for (const Initializer& initial :
       {Initializer{init::normal(7, 0.3F)},
        Initializer{[](const ParameterInfo&, std::int64_t first, std::span<float> out) {
          for (float& x : out) { x = 1.0F / static_cast<float>(3 + first++); }
        }}}) {
    const auto masters = [&](Offload offload) {
      std::vector<float> all;
      run_ranks(1, [&](World& world) {
        ShardedModel model{world, {.compute = DType::bf16, .offload = offload}};
        (void)model.add_unit("a", {{"w", {900, 700}}});
        (void)model.add_unit("b", {{"w", {33}}});
        model.materialize(initial);
        model.optimize_with(AdamW{});
        model.export_masters(
            [&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
              all.insert(all.end(), values.begin(), values.end());
            });
      });
      return all;
    };
    EXPECT_EQ(masters(Offload::none), masters(Offload::optimizer));
  }
}

}  // namespace
}  // namespace tessera::test::offload_test
