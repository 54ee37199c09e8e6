#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// Scopes that hooks open and close: moved into tables, closed by calls, used on other threads.
namespace tessera::test::scope_test {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::map<std::string, std::vector<float>> parameters;
  StepReport report;
};

/// Runs `work` on a new thread and waits for it.
template <class Work>
void elsewhere(const Work& work) {
  std::thread thread{work};
  thread.join();
}

/// How a program opens and closes its units.
enum class Hooks { braces, table, threads };

/// Trains two steps of three units whose gradient is three times their parameters.
Outcome train(Hooks hooks, const ModelOptions& options, const WorldOptions& world_options) {
  Outcome outcome;
  run_ranks(
      2,
      [&](World& world) {
        ShardedModel model{world, options};
        std::vector<Unit> units;
        for (const char* const name : {"a", "b", "c"}) {
          units.push_back(model.add_unit(name, {{"w", {67}}}));
        }
        model.materialize(init::normal(3, 0.5F));
        model.optimize_with(AdamW{});
        const auto compute = [](const BackwardScope& g) {
          device::enqueue(g.stream(), [from = static_cast<const float*>(g["w"]),
                                       to = static_cast<float*>(g.grad("w"))] {
            for (int i = 0; i < 67; ++i) { to[i] += 3 * from[i]; }
          });
        };
        std::map<std::size_t, ForwardScope> forward;
        std::map<std::size_t, BackwardScope> backward;
        const auto run = [&](const auto& work) {
          hooks == Hooks::threads ? elsewhere(work) : work();
        };
        for (int step = 0; step < 2; ++step) {
          for (const Unit unit : units) {
            if (hooks == Hooks::braces) {
              (void)model.forward(unit);
              continue;
            }
            run([&] { forward.emplace(unit.index(), model.forward(unit)); });
            run([&] { forward.extract(unit.index()).mapped().close(); });
          }
          for (std::size_t u = units.size(); u-- > 0;) {
            if (hooks == Hooks::braces) {
              const BackwardScope g = model.backward(units[u]);
              compute(g);
              continue;
            }
            run([&] { backward.emplace(u, model.backward(units[u])); });
            run([&] { compute(backward.at(u)); });
            run([&] { backward.erase(u); });
          }
          run([&] { model.step(); });
        }
        auto parameters = exported(model, StateTensor::parameters);
        if (world.rank() == 0) { outcome = {std::move(parameters), model.report()}; }
      },
      world_options);
  return outcome;
}

TEST(MovableScopes, GiveTheBitsOfBracesUnderEveryStrategyFromAnyThread) {
  for (const Strategy strategy : all_strategies()) {
    for (const ComputeStream stream : {ComputeStream::caller, ComputeStream::worker}) {
      const ModelOptions options{.strategy = strategy, .shard_group = half_of(2, strategy)};
      const WorldOptions world{.testing = {.poison = SlotPoison::nan, .compute_stream = stream}};
      const Outcome expected = train(Hooks::braces, options, world);
      for (const Hooks hooks : {Hooks::table, Hooks::threads}) {
        const Outcome outcome = train(hooks, options, world);
        EXPECT_EQ(outcome.parameters, expected.parameters) << to_string(strategy);
        EXPECT_EQ(outcome.report.grad_norm, expected.report.grad_norm) << to_string(strategy);
      }
    }
  }
}

/// The refusal of `program` on one rank; empty if there is none.
std::string refusal(const std::function<void(ShardedModel&, Unit)>& program) {
  try {
    run_ranks(1, [&](World& world) {
      ShardedModel model{world, {.strategy = Strategy::zero3}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{});
      program(model, a);
    });
  } catch (const ContractError& error) { return error.what(); }
  return {};
}

TEST(MovableScopes, RefuseUsesAfterTheirEnd) {
  constexpr const char* kEnded = "a scope is used after it ended or was moved from";
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a) {
                ForwardScope scope = model.forward(a);
                scope.close();
                EXPECT_FALSE(scope.is_open());
                (void)scope["w"];
              }),
              HasSubstr(kEnded));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a) {
                ForwardScope scope = model.forward(a);
                scope.close();
                scope.close();
              }),
              HasSubstr(kEnded));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a) {
                ForwardScope scope = model.forward(a);
                const ForwardScope taken = std::move(scope);
                EXPECT_TRUE(taken.is_open());
                (void)scope.stream();  // NOLINT(bugprone-use-after-move): the refused use
              }),
              HasSubstr(kEnded));
}

TEST(MovableScopes, EndTheScopeTheyReplace) {
  EXPECT_EQ(refusal([](ShardedModel& model, Unit a) {
              ForwardScope scope = model.forward(a);
              ForwardScope other = std::move(scope);
              scope = std::move(other);  // NOLINT(bugprone-use-after-move): assigned again
              EXPECT_TRUE(scope.is_open());
              const ConstTensor early = scope["w"];
              scope.close();
              scope = model.forward(a);
              EXPECT_THROW((void)early.data(), ContractError);
              EXPECT_NE(scope["w"].data(), nullptr);
            }),
            "");
}

TEST(MovableScopes, NameOpenScopesIfTheModelIsDestroyedFirst) {
  std::string error;
  try {
    run_ranks(1, [](World& world) {
      std::map<int, ForwardScope> table;
      ShardedModel model{world, {.strategy = Strategy::zero3}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      table.emplace(0, model.forward(a));
    });
  } catch (const ContractError& thrown) { error = thrown.what(); }
  EXPECT_THAT(error, HasSubstr("the model was destroyed while a scope of unit 'a'"));
}

TEST(MovableScopes, CloseThrowsTheErrorThatADestructorWouldKeep) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero3, .checks = Checks::memory}};
    const Unit a = model.add_unit("a", {{"w", {9}}});
    model.materialize(init::constant(1.0F));
    (void)model.forward(a);
    BackwardScope scope = model.backward(a);
    float* const gradient = scope.grad("w");
    gradient[10] = 1.0F;  // beyond the gradient's end
    EXPECT_THROW(scope.close(), ContractError);
  });
}

TEST(Addresses, StayWhereTheModelPromisesIt) {
  struct Case {
    ModelOptions options;
    bool block_parameters;
    bool block_gradients;
  };
  const std::vector<Case> cases{
      {{.strategy = Strategy::dp}, true, true},
      {{.strategy = Strategy::ddp}, true, true},
      {{.strategy = Strategy::zero1}, true, true},
      {{.strategy = Strategy::zero2}, true, false},
      {{.strategy = Strategy::zero3}, false, false},
      {{.strategy = Strategy::zero3, .reshard = Reshard::after_backward}, true, false},
      {{.strategy = Strategy::zero3, .persist_elems = 100}, true, false},
      {{.strategy = Strategy::hybrid, .shard_group = 2}, false, false},
  };
  for (const Case& c : cases) {
    run_ranks(2, [&](World& world) {
      ShardedModel model{world, c.options};
      std::vector<Unit> units{model.add_unit("root", {{"w", {9}}}, {.kind = UnitKind::root})};
      for (const char* const name : {"a", "b", "c"}) {
        units.push_back(model.add_unit(name, {{"w", {67}}}));
      }
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{});
      std::map<std::size_t, std::vector<const void*>> parameters;
      std::map<std::size_t, std::vector<const void*>> gradients;
      for (int step = 0; step < 3; ++step) {
        for (const Unit unit : units) {
          const auto p = model.forward(unit);
          parameters[unit.index()].push_back(p["w"].data());
        }
        for (std::size_t u = units.size(); u-- > 0;) {
          const auto g = model.backward(units[u]);
          parameters[u].push_back(g["w"].data());
          gradients[u].push_back(g.grad("w").data());
        }
        model.step();
      }
      const auto stay = [](const std::vector<const void*>& all) {
        return std::ranges::all_of(all, [&](const void* one) { return one == all.front(); });
      };
      const std::string what{to_string(c.options.strategy)};
      for (const Unit unit : units) {
        const bool root = unit.index() == 0;
        const bool p = model.stays_in_place(unit, StateTensor::parameters);
        const bool g = model.stays_in_place(unit, StateTensor::gradients);
        EXPECT_EQ(p, root || c.block_parameters) << what;
        EXPECT_EQ(g, root || c.block_gradients) << what;
        // Tensors without the promise move in this test; otherwise it would not detect a missing
        // promise.
        EXPECT_EQ(stay(parameters[unit.index()]), p) << what << " " << unit.index();
        EXPECT_EQ(stay(gradients[unit.index()]), g) << what << " " << unit.index();
      }
    });
  }
}

}  // namespace
}  // namespace tessera::test::scope_test
