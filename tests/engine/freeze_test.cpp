// Parameters that are frozen for some steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::freeze_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kElems = 300;

float slope(const std::string& name, std::int64_t i, int number) {
  const auto place = static_cast<std::int64_t>(name.size()) + i * 7 + std::int64_t{number} * 5;
  return std::ldexp(static_cast<float>(place % 31 - 15), -4);
}

struct Course {
  std::string name = {};
  ModelOptions model = {};
  Optimizer optimizer = SGD{.lr = 0.125F, .weight_decay = 0.25F};
  OptimizerOptions options = {.clip_norm = 0.0F};
  UnitOptions unit = {};
};

/// Two units; "b" of the first lies between parameters that go on, and has an alias in the second,
/// unless scopes overwrite gradients. Gradients are a fixed function of name, index and step.
struct Trainer {
  Trainer(World& world, const Course& setup) : model{world, setup.model} {
    unit =
        model.add_unit("unit", {{"a", {kElems, 1}}, {"b", {kElems, 1}}, {"bias", {3}}}, setup.unit);
    std::vector<ParameterSpec> specs{{"scale", {5}}};
    if (setup.unit.gradients != GradientInit::unzeroed) {
      specs.push_back({.name = "b", .shape = {kElems, 1}, .tied_to = TiedTo{"unit", "b"}});
    }
    aliased = specs.size() > 1;
    other = model.add_unit("other", specs);
    model.materialize(init::normal(2, 1.0F));
    model.optimize_with(setup.optimizer, setup.options);
  }

  /// Ends before `step`.
  void passes(int number) {
    (void)model.forward(unit);
    (void)model.forward(other);
    backward(other, {"scale"}, number);
    backward(unit, {"a", "b", "bias"}, number);
  }
  void step(int number) {
    passes(number);
    model.step();
  }
  void backward(Unit which, const std::vector<std::string>& names, int number) {
    const BackwardScope scope = model.backward(which);
    for (const std::string& name : names) {
      if (!scope.has_grad(name)) { continue; }
      float* const gradient = scope.grad(name);
      for (std::int64_t i = 0; i < scope.grad(name).shape().elems(); ++i) {
        gradient[i] = slope(name, i, number);
      }
    }
  }

  ShardedModel model;
  Unit unit;
  Unit other;
  bool aliased = false;
};

using Weights = std::map<std::string, std::vector<float>>;

/// The weights after steps `numbers`, of which those in `without` leave "b" as it is.
Weights trained(const Course& setup, const std::vector<int>& numbers,
                const std::set<int>& without) {
  Weights result;
  run_ranks(2, [&](World& world) {
    Trainer trainer{world, setup};
    for (const int number : numbers) {
      // Through the alias and its owner in turn.
      const Unit through = trainer.aliased && number % 2 == 1 ? trainer.other : trainer.unit;
      without.contains(number) ? trainer.model.freeze(through, "b")
                               : trainer.model.unfreeze(through, "b");
      trainer.step(number);
    }
    Weights weights = exported(trainer.model, StateTensor::parameters);
    if (world.rank() == 0) { result = std::move(weights); }
  });
  return result;
}

CustomOptimizer momentum() {
  return {.name = "momentum", .states = 1, .lr = 0.125F, .update = [](const ShardUpdate& piece) {
            for (std::size_t i = 0; i < piece.weights.size() && *piece.apply != 0; ++i) {
              piece.states[0][i] = 0.5F * piece.states[0][i] + piece.gradient_at(i);
              piece.weights[i] -= piece.lr * (piece.states[0][i] + 0.25F * piece.weights[i]);
            }
          }};
}

std::vector<Course> courses() {
  std::vector<Course> all;
  for (const Strategy strategy : all_strategies()) {
    const ModelOptions model{.strategy = strategy, .shard_group = half_of(2, strategy)};
    all.push_back({.name = std::string{to_string(strategy)}, .model = model});
  }
  const ModelOptions zero3{.strategy = Strategy::zero3};
  ModelOptions bf16 = zero3;
  bf16.compute = DType::bf16;
  ModelOptions remainders = bf16;
  remainders.master_weights = MasterWeights::remainder;
  ModelOptions on_host = bf16;
  on_host.offload = Offload::optimizer;
  ModelOptions parked = bf16;
  parked.offload = Offload::state;
  ModelOptions blocks = zero3;
  blocks.align_elems = 256;
  const Lion lion{.lr = 0.125F, .weight_decay = 0.25F};
  all.push_back({.name = "bf16", .model = bf16});
  all.push_back({.name = "remainders", .model = remainders, .optimizer = lion});
  all.push_back({.name = "updated on the host", .model = on_host});
  all.push_back({.name = "state in the host pool", .model = parked, .optimizer = lion});
  all.push_back({.name = "int8",
                 .model = blocks,
                 .optimizer = lion,
                 .options = {.clip_norm = 0.0F, .moments = MomentFormat::int8}});
  all.push_back({.name = "a user's optimizer", .model = zero3, .optimizer = momentum()});
  for (const auto& [name, how] : {std::pair{"unzeroed", GradientInit::unzeroed},
                                  std::pair{"first write", GradientInit::first_write}}) {
    all.push_back({.name = name, .model = zero3, .unit = {.gradients = how}});
  }
  return all;
}

// None of these rules counts steps, so the frozen parameter must have the bits of a run that never
// made the steps in which it was frozen: value and state have not changed. All others must have
// those of a run that froze nothing.
TEST(Freeze, LeavesValueAndStateOfTheParameterAndNothingElse) {
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6};
  const std::set<int> frozen{2, 3, 5};
  for (const Course& setup : courses()) {
    SCOPED_TRACE(setup.name);
    const Weights some = trained(setup, all, frozen);
    const Weights never = trained(setup, all, {});
    const Weights shorter = trained(setup, {0, 1, 4, 6}, {});
    EXPECT_EQ(some.at("unit.b"), shorter.at("unit.b"));
    EXPECT_NE(some.at("unit.b"), never.at("unit.b"));
    for (const char* const name : {"unit.a", "unit.bias", "other.scale"}) {
      EXPECT_EQ(some.at(name), never.at(name)) << name;
    }
  }
}

TEST(Freeze, BeforeTheOptimizerIsGivenHoldsFromTheFirstStepOn) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world};
    const Unit unit = model.add_unit("u", {{"w", {4}}, {"x", {4}}});
    model.materialize(init::constant(1.0F));
    model.freeze(unit, "w");
    model.optimize_with(AdamW{.lr = 0.5F, .weight_decay = 0.1F},
                        {.decays = [](auto, auto&) { return true; }});
    (void)model.forward(unit);
    (void)model.backward(unit);
    model.step();
    const Weights after = exported(model, StateTensor::parameters);
    EXPECT_EQ(after.at("u.w"), std::vector<float>(4, 1.0F));
    EXPECT_NE(after.at("u.x"), std::vector<float>(4, 1.0F)) << "which decays";
  });
}

// The norm is of what is trained: clipping by a norm with stale gradients would shrink the rest.
TEST(Freeze, TakesTheParameterOutOfTheNorm) {
  for (const GradientInit how :
       {GradientInit::zeroed, GradientInit::unzeroed, GradientInit::first_write}) {
    run_ranks(2, [&](World& world) {
      Trainer trainer{world, {.model = {.strategy = Strategy::zero2}, .unit = {.gradients = how}}};
      trainer.step(0);
      const double whole = trainer.model.report().grad_norm;
      trainer.model.freeze(trainer.unit, "b");
      trainer.step(0);
      double squares = 0;
      for (const auto& [name, elems] :
           std::map<std::string, std::int64_t>{{"a", kElems}, {"bias", 3}, {"scale", 5}}) {
        for (std::int64_t i = 0; i < elems; ++i) {
          squares += std::pow(static_cast<double>(slope(name, i, 0)), 2);
        }
      }
      EXPECT_EQ(trainer.model.report().grad_norm, std::sqrt(squares));  // exact: small integers
      EXPECT_LT(std::sqrt(squares), whole);
    });
  }
}

// Unzeroed gradients are those of the step before until backward overwrites them.
TEST(Freeze, WithinABackwardScopeLeavesTheNormOfFreezingBefore) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    std::vector<double> norms;
    for (const bool within : {false, true}) {
      run_ranks(2, [&](World& world) {
        Trainer trainer{
            world,
            {.model = {.strategy = strategy}, .unit = {.gradients = GradientInit::unzeroed}}};
        trainer.step(0);
        trainer.step(0);
        if (!within) { trainer.model.freeze(trainer.unit, "b"); }
        (void)trainer.model.forward(trainer.unit);
        (void)trainer.model.forward(trainer.other);
        trainer.backward(trainer.other, {"scale"}, 0);
        {
          const BackwardScope scope = trainer.model.backward(trainer.unit);
          if (within) { trainer.model.freeze(trainer.unit, "b"); }
          for (const char* const name : {"a", "bias"}) {
            float* const gradient = scope.grad(name);
            std::fill_n(gradient, scope.grad(name).shape().elems(), 0.25F);
          }
        }
        trainer.model.step();
        if (world.rank() == 0) { norms.push_back(trainer.model.report().grad_norm); }
      });
    }
    EXPECT_EQ(norms[0], norms[1]) << to_string(strategy);
  }
}

/// The text of the error of a rank's body on two ranks.
template <class Expected>
std::string refusal(const std::function<void(World&, Trainer&)>& body) {
  try {
    run_ranks(2, [&](World& world) {
      Trainer trainer{world, {.model = {.strategy = Strategy::zero3}}};
      body(world, trainer);
    });
  } catch (const Expected& error) { return error.what(); }
  return "accepted";
}

TEST(Freeze, RefusesWhatItCannotKeepByName) {
  EXPECT_THAT(refusal<ContractError>([](World&, Trainer& t) { t.model.freeze(t.unit, "c"); }),
              HasSubstr("unit 'unit' has no parameter 'c'"));
  EXPECT_THAT(refusal<ContractError>([](World&, Trainer& t) { t.model.freeze(Unit{}, "b"); }),
              HasSubstr("freeze: a default Unit{}"));
  EXPECT_THAT(refusal<ContractError>([](World&, Trainer& t) {
                t.passes(0);
                t.model.freeze(t.unit, "a");
              }),
              HasSubstr("freeze: this step already has a gradient of 'unit.a'"));
  EXPECT_THAT(refusal<ContractError>([](World&, Trainer& t) {
                t.model.freeze(t.unit, "b");
                (void)t.model.forward(t.unit);
                (void)t.model.forward(t.other);
                (void)t.model.backward(t.other);
                (void)t.model.backward(t.unit).grad("b");
              }),
              HasSubstr("'unit.b' is frozen and has no gradient"));
  EXPECT_THAT(refusal<CommError>([](World& world, Trainer& t) {
                if (world.rank() == 1) { t.model.freeze(t.unit, "bias"); }
                t.step(0);
              }),
              HasSubstr("1 frozen from 'unit.bias' on"));
  run_ranks(1, [](World& world) {
    ShardedModel model{world};
    const Unit unit = model.add_unit("u", {{"w", {4}}, {"fixed", {4}, /*trainable=*/false}});
    EXPECT_THROW(model.freeze(unit, "w"), ContractError);
    model.materialize(init::constant(1.0F));
    for (const bool freezes : {true, false}) {
      try {
        freezes ? model.freeze(unit, "fixed") : model.unfreeze(unit, "fixed");
        ADD_FAILURE() << "accepted";
      } catch (const ContractError& error) {
        EXPECT_THAT(error.what(), HasSubstr("'u.fixed' was declared frozen"));
      }
    }
  });
}

}  // namespace
}  // namespace tessera::test::freeze_test
