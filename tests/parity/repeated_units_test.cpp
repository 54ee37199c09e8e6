#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// Blocks that a forward pass uses several times, consecutively or in rounds: A B C A B C.
namespace tessera::test::repeated_units_test {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kNames{"a", "b", "c"};
const std::vector<std::int64_t> kSizes{70, 300, 129};

/// The order of a forward pass, by unit.
using Order = std::vector<std::size_t>;

struct Case {
  Order order;
  ModelOptions options;
  bool declared = true;
  ComputeStream stream = ComputeStream::worker;
  std::optional<DelayInjection> delays = {};
};

struct Outcome {
  std::map<std::string, std::vector<float>> gradients;  // of the first step
  std::map<std::string, std::vector<float>> parameters;
  std::size_t slots = 0;  // bytes for whole gradients
};

/// x = x / 2 + w[0] for each use; the gradient of every element is exactly 2^-(number of later
/// uses).
Outcome train(int ranks, const Case& c) {
  Outcome outcome;
  run_ranks(
      ranks,
      [&](World& world) {
        ShardedModel model{world, c.options};
        std::vector<Unit> units;
        for (std::size_t u = 0; u < kNames.size(); ++u) {
          units.push_back(model.add_unit(kNames[u], {{"w", {kSizes[u]}}}));
        }
        std::vector<Unit> forward;
        for (const std::size_t u : c.order) { forward.push_back(units[u]); }
        if (c.declared) { model.declare_order(forward); }
        model.materialize(init::normal(2, 0.5F));
        model.optimize_with(SGD{.lr = 0.1F, .momentum = 0.9F});
        std::map<std::string, std::vector<float>> gradients;
        std::vector<float> state(2);
        float* const x = &state[0];
        float* const dx = &state[1];
        for (int step = 0; step < 3; ++step) {
          for (int micro = 0; micro < c.options.accumulate; ++micro) {
            for (const Unit unit : forward) {
              const auto p = model.forward(unit);
              device::enqueue(p.stream(),
                              [w = static_cast<const float*>(p["w"]), x] { *x = *x / 2 + *w; });
            }
            device::enqueue(world.compute_stream(), [dx] { *dx = 1.0F; });
            for (std::size_t i = forward.size(); i-- > 0;) {
              const auto g = model.backward(forward[i]);
              device::enqueue(g.stream(), [to = static_cast<float*>(g.grad("w")),
                                           n = g["w"].shape().elems(), dx] {
                for (std::int64_t e = 0; e < n; ++e) { to[e] += *dx; }
                *dx /= 2;
              });
            }
          }
          if (step == 0) { gradients = exported(model, StateTensor::gradients); }
          model.step();
        }
        const std::size_t slots = world.memory().report().live[Category::reduce];
        auto parameters = exported(model, StateTensor::parameters);
        if (world.rank() == 0) { outcome = {gradients, parameters, slots}; }
      },
      {.testing = {.poison = SlotPoison::nan, .delays = c.delays, .compute_stream = c.stream}});
  return outcome;
}

/// Each unit's gradient: the sum over its uses in the order.
std::map<std::string, float> expected_gradients(const Order& order) {
  std::map<std::string, float> sums;
  float dx = 1.0F;
  for (std::size_t i = order.size(); i-- > 0; dx /= 2) { sums[kNames[order[i]] + ".w"] += dx; }
  return sums;
}

class RepeatedUnits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RepeatedUnits, ::testing::Values(1, 2, 3),
                         ::testing::PrintToStringParamName());

TEST_P(RepeatedUnits, AnyDeclaredOrderRunsUnderEveryStrategyWithTheSameBits) {
  std::uint64_t seed = 0;
  for (const Order& order : {Order{0, 1, 2, 0, 1, 2}, Order{0, 0, 1, 2, 2}, Order{0, 1, 2, 1, 0},
                             Order{2, 1, 0, 0, 1, 2, 0}}) {
    for (const int accumulate : {1, 2}) {
      const Outcome expected = train(GetParam(), {order, {.accumulate = accumulate}});
      for (const auto& [name, value] : expected_gradients(order)) {
        EXPECT_EQ(expected.gradients.at(name).front(), value) << name;
        EXPECT_EQ(expected.gradients.at(name).back(), value) << name;
      }
      for (const Strategy strategy : tried_strategies()) {
        const Case c{.order = order,
                     .options = {.strategy = strategy,
                                 .accumulate = accumulate,
                                 .accumulate_mode = AccumulateMode::every},
                     .delays = DelayInjection{++seed, std::chrono::microseconds{50}}};
        const Outcome outcome = train(GetParam(), c);
        EXPECT_EQ(outcome.gradients, expected.gradients) << to_string(strategy);
        EXPECT_EQ(outcome.parameters, expected.parameters) << to_string(strategy);
      }
    }
  }
}

TEST(GradientSlots, MatchTheMostUnitsInBackwardAtOnce) {
  const auto slots = [](const Order& order) {
    return train(2, {order, {.strategy = Strategy::zero2}}).slots;
  };
  const std::size_t two = slots({0, 1, 2});
  EXPECT_EQ(slots({0, 0, 1, 1, 2}), two);
  EXPECT_EQ(slots({0, 1, 0, 1, 2}), two);
  EXPECT_EQ(two, std::size_t{2} * 384 * sizeof(float));                      // of the largest
  EXPECT_EQ(slots({0, 1, 2, 0, 1, 2}), (128U + 384 + 256) * sizeof(float));  // one for each
}

TEST(GradientSlots, WithoutADeclarationTheErrorSaysToDeclareAndHowManySlotsAreNeeded) {
  const auto refusal = [](bool declared, int slots) -> std::string {
    try {
      run_ranks(2, [&](World& world) {
        ShardedModel model{world,
                           {.strategy = Strategy::zero2, .tuning = {.gradient_slots = slots}}};
        std::vector<Unit> units;
        for (const char* name : {"a", "b", "c"}) {
          units.push_back(model.add_unit(name, {{"w", {9}}}));
        }
        if (declared) { model.declare_order(units); }
        model.materialize(init::constant(1.0F));
        for (int round = 0; round < 2; ++round) {
          for (const Unit unit : units) { (void)model.forward(unit); }
        }
        for (std::size_t i = 3; i-- > 0;) { (void)model.backward(units[i]); }
      });
    } catch (const ContractError& error) { return error.what(); }
    return {};
  };
  EXPECT_THAT(refusal(false, 2), HasSubstr("tell declare_order how often each unit is used"));
  EXPECT_THAT(refusal(false, 2), HasSubstr("raise `tuning.gradient_slots` from 2 to 3"));
  EXPECT_THAT(refusal(true, 2), HasSubstr("follow the order"));
  EXPECT_EQ(refusal(false, 3), "");
}

}  // namespace
}  // namespace tessera::test::repeated_units_test
