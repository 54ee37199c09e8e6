#include <gtest/gtest.h>

#include "device/cpu/host_task.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// How long a unit stays gathered changes memory and traffic, but never a bit.
namespace tessera::test::resharding_test {
namespace {

std::vector<ModelOptions> policies() {
  return {{.tuning = {.prefetch_backward = 0}},
          {.prefetch = 0, .tuning = {.prefetch_backward = 3}},
          {.reshard = Reshard::after_backward},
          {.prefetch = 0, .reshard = Reshard::after_backward},
          {.persist_elems = 13},
          {.persist_elems = 63},
          {.prefetch = 2, .reshard = Reshard::after_backward, .persist_elems = 91}};
}

class Resharding : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Resharding, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(Resharding, NoPolicyChangesABit) {
  for (const int accumulate : {1, 2}) {
    ToyRun run;
    run.ranks = GetParam();
    run.steps = 4;
    run.options.accumulate = accumulate;
    run.options.accumulate_mode = AccumulateMode::every;
    const ToyOutcome expected = run_toy(run);  // ddp
    std::uint64_t seed = 0;
    for (ModelOptions options : policies()) {
      options.strategy = Strategy::zero3;
      options.accumulate = accumulate;
      options.accumulate_mode = AccumulateMode::every;
      ToyRun with = run;
      with.options = options;
      with.toy.declared_order = ++seed % 2 == 0;
      with.world.testing.poison = SlotPoison::nan;
      with.world.testing.delays = DelayInjection{seed, std::chrono::microseconds{60}};
      EXPECT_EQ(difference(expected, run_toy(with)), "") << "policy " << seed;
    }
  }
}

// Every kernel is enqueued: only events order the work, not the caller's thread. A unit's gradient
// and its output depend on its parameters, so that stale parameters show.
std::map<std::string, std::vector<float>> train_enqueued(int ranks, const ModelOptions& options,
                                                         std::optional<DelayInjection> delays) {
  std::map<std::string, std::vector<float>> parameters;
  run_ranks(
      ranks,
      [&](World& world) {
        ShardedModel model{world, options};
        std::vector<Unit> units;
        for (const int size : {700, 40, 300, 5}) {
          units.push_back(model.add_unit("u" + std::to_string(size), {{"w", {size}}}));
        }
        model.materialize(init::normal(7, 0.5F));
        model.optimize_with(SGD{.lr = 0.1F, .momentum = 0.9F});
        std::vector<float> carried(2, 1.0F);
        float* const x = carried.data();
        const auto use = [](const Scope& scope) {
          const ConstTensor tensor = scope["w"];
          return std::pair{static_cast<const float*>(tensor), tensor.shape().elems()};
        };
        for (int step = 0; step < 4; ++step) {
          for (int micro = 0; micro < options.accumulate; ++micro) {
            for (const Unit unit : units) {
              const auto p = model.forward(unit);
              device::enqueue(p.stream(),
                              [w = use(p), x] { x[0] = 0.5F * x[0] + w.first[w.second - 1]; });
            }
            for (std::size_t u = units.size(); u-- > 0;) {
              const auto g = model.backward(units[u]);
              device::enqueue(g.stream(), [w = use(g), x, to = static_cast<float*>(g.grad("w"))] {
                for (std::int64_t i = 0; i < w.second; ++i) { to[i] += 0.1F * x[0] + w.first[i]; }
              });
            }
          }
          model.step();
          auto evaluation = model.evaluate();
          for (int pass = 0; pass < 2; ++pass) {
            for (const Unit unit : units) {
              const auto p = model.forward(unit);
              device::enqueue(p.stream(),
                              [w = use(p), x] { x[0] += 0.01F * w.first[w.second - 1]; });
            }
            evaluation.end_pass();
          }
        }
        auto all = exported(model, StateTensor::parameters);
        if (world.rank() == 0) { parameters = std::move(all); }
      },
      {.testing = {
           .poison = SlotPoison::nan, .delays = delays, .compute_stream = ComputeStream::worker}});
  return parameters;
}

TEST_P(Resharding, OnAStreamOfItsOwnEveryUnitIsReadAfterItsGatherAndWrittenAfterItsRead) {
  for (const int accumulate : {1, 2}) {
    const auto expected = train_enqueued(GetParam(), {.accumulate = accumulate}, {});
    std::uint64_t seed = 0;
    for (ModelOptions options : policies()) {
      options.strategy = Strategy::zero3;
      options.accumulate = accumulate;
      options.accumulate_mode = AccumulateMode::deferred;
      const DelayInjection delays{++seed, std::chrono::microseconds{60}};
      EXPECT_EQ(train_enqueued(GetParam(), options, delays), expected) << "policy " << seed;
    }
  }
}

TEST(ReshardingOfUnits, AUnitMayDecideForItself) {
  const auto outcome = [](std::optional<Reshard> own, Reshard all) {
    std::size_t held = 0;
    run_ranks(2, [&](World& world) {
      ShardedModel model{world, {.strategy = Strategy::zero3, .prefetch = 0, .reshard = all}};
      for (const char* name : {"a", "b", "c"}) {
        (void)model.add_unit(name, {{"w", {128}}}, {.reshard = own});
      }
      model.materialize(init::constant(1.0F));
      if (world.rank() == 0) { held = world.memory().report().live[Category::gather]; }
    });
    return held;
  };
  EXPECT_EQ(outcome({}, Reshard::after_forward), 512U);
  EXPECT_EQ(outcome(Reshard::after_backward, Reshard::after_forward), 3 * 512U);
  EXPECT_EQ(outcome({}, Reshard::after_backward), 3 * 512U);
  EXPECT_EQ(outcome(Reshard::after_forward, Reshard::after_backward), 512U);
}

}  // namespace
}  // namespace tessera::test::resharding_test
