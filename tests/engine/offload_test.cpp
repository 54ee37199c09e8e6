// What is done between the steps of an offloaded optimizer.
#include <gtest/gtest.h>

#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::offload_test {
namespace {

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
