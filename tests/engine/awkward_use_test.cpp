#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// Rare but allowed uses, and refusals after which the model must continue unchanged.
namespace tessera::test::awkward_use_test {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kDeadline{20};

/// The error that the ranks throw; empty if none.
std::string failure(int ranks, const std::function<void(World&)>& body,
                    const WorldOptions& options = {.deadline = kDeadline}) {
  try {
    run_ranks(ranks, body, options);
  } catch (const std::exception& error) { return error.what(); }
  return {};
}

/// Both kinds of compute stream: unlike the caller's thread, a worker does not order work
/// implicitly.
class OnBothStreams : public ::testing::TestWithParam<ComputeStream> {
 protected:
  static WorldOptions world_options() {
    return {.deadline = kDeadline,
            .testing = {.poison = SlotPoison::nan, .compute_stream = GetParam()}};
  }
};
INSTANTIATE_TEST_SUITE_P(Streams, OnBothStreams,
                         ::testing::Values(ComputeStream::caller, ComputeStream::worker),
                         [](const auto& test) {
                           return test.param == ComputeStream::caller ? "caller" : "worker";
                         });

/// Adds to the first element, on the scope's stream.
void add(const BackwardScope& scope, std::string_view name, float value) {
  float* const gradient = scope.grad(name);
  device::enqueue(scope.stream(), [=] { gradient[0] += value; });
}

void pass(ShardedModel& model, std::initializer_list<Unit> units, float gradient = 1.0F) {
  for (const Unit unit : units) { (void)model.forward(unit); }
  for (auto unit = std::rbegin(units); unit != std::rend(units); ++unit) {
    const auto g = model.backward(*unit);
    add(g, "w", gradient);
  }
}

/// A backward scope that ends on request.
struct Held {
  Held(ShardedModel& model, Unit unit) : scope{model.backward(unit)} {}
  BackwardScope scope;
};

// ------------------------------------------------------------------------------- odd models

TEST_P(OnBothStreams, UnitsWithoutParametersElementsOrTraining) {
  for (const int ranks : {1, 3}) {
    for (const Strategy strategy : all_strategies()) {
      for (const UnitKind kind : {UnitKind::block, UnitKind::root}) {
        const auto body = [&](World& world) {
          ShardedModel model{
              world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
          const Unit none = model.add_unit("none", {}, {.kind = kind});
          const Unit empty = model.add_unit("empty", {{"w", {0, 4}}}, {.kind = kind});
          const Unit frozen = model.add_unit("frozen", {{"w", {3}, false}}, {.kind = kind});
          model.materialize(init::constant(2.0F));
          model.optimize_with(AdamW{});
          for (int step = 0; step < 3; ++step) {
            for (const Unit unit : {none, empty, frozen}) { (void)model.forward(unit); }
            for (const Unit unit : {frozen, empty, none}) { (void)model.backward(unit); }
            EXPECT_TRUE(exported(model, StateTensor::gradients).count("frozen.w") == 0);
            model.step();
            EXPECT_EQ(model.report().grad_norm, 0.0);
          }
          const auto all = exported(model, StateTensor::parameters);
          EXPECT_EQ(all.at("frozen.w"), (std::vector<float>{2.0F, 2.0F, 2.0F}));
          EXPECT_TRUE(all.at("empty.w").empty());
        };
        EXPECT_EQ(failure(ranks, body, world_options()), "") << to_string(strategy);
      }
    }
  }
}

TEST_P(OnBothStreams, TwoModelsShareAWorldAndOneEndsEarlier) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world) {
      const auto make = [&](ShardedModel& model) {
        const Unit unit = model.add_unit("a", {{"w", {70}}});
        model.materialize(init::constant(1.0F));
        model.optimize_with(SGD{.lr = 1.0F, .momentum = 0.0F});
        return unit;
      };
      ShardedModel first{world,
                         {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const Unit a = make(first);
      {
        ShardedModel second{world,
                            {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
        const Unit b = make(second);
        pass(first, {a});
        pass(second, {b});
        second.step();
        first.step();
      }
      pass(first, {a});
      first.step();
      EXPECT_FLOAT_EQ(exported(first, StateTensor::parameters).at("a.w").front(), -1.0F);
    };
    EXPECT_EQ(failure(3, body, world_options()), "") << to_string(strategy);
  }
}

TEST_P(OnBothStreams, GradientsOfSeveralAliasesMeetInTheirOwnerHoweverScopesNest) {
  for (const Strategy strategy : all_strategies()) {
    for (const bool alias_closes_first : {true, false}) {
      const auto body = [&](World& world) {
        ShardedModel model{world,
                           {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
        const Unit owner = model.add_unit("owner", {{"w", {100}}});
        const Unit first = model.add_unit(
            "first", {{.name = "w", .shape = {100}, .tied_to = TiedTo{"owner", "w"}}, {"b", {3}}});
        const Unit second = model.add_unit(
            "second", {{.name = "w", .shape = {100}, .tied_to = TiedTo{"owner", "w"}}});
        model.materialize(init::constant(1.0F));
        model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
        for (int step = 0; step < 3; ++step) {
          for (const Unit unit : {owner, first, second}) { (void)model.forward(unit); }
          {
            const auto g = model.backward(second);
            add(g, "w", 1.0F);
          }
          auto outer = std::make_unique<Held>(model, owner);
          auto inner = std::make_unique<Held>(model, first);
          add(outer->scope, "w", 1.0F);
          add(inner->scope, "w", 1.0F);
          (alias_closes_first ? inner : outer).reset();
          add((alias_closes_first ? outer : inner)->scope, "w", 1.0F);
          (alias_closes_first ? outer : inner).reset();
          model.step();
          EXPECT_DOUBLE_EQ(model.report().grad_norm, 4.0) << alias_closes_first;
        }
      };
      EXPECT_EQ(failure(2, body, world_options()), "") << to_string(strategy);
    }
  }
}

TEST_P(OnBothStreams, AForwardScopeHeldOverTheWholeMicroBatch) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world) {
      ShardedModel model{
          world,
          {.strategy = strategy, .shard_group = half_of(world.size(), strategy), .accumulate = 2}};
      const Unit base = model.add_unit("base", {{"w", {5}, false}}, {.kind = UnitKind::root});
      const Unit block = model.add_unit("block", {{"w", {5}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
      for (int step = 0; step < 2; ++step) {
        for (int micro = 0; micro < 2; ++micro) {
          const auto p = model.forward(base);
          pass(model, {block});
        }
        model.step();
        EXPECT_DOUBLE_EQ(model.report().grad_norm, 1.0);
      }
    };
    EXPECT_EQ(failure(2, body, world_options()), "") << to_string(strategy);
  }
}

TEST_P(OnBothStreams, AnUnzeroedUnitLeftOutOfAStepCountsAsZero) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const Unit a = model.add_unit("a", {{"w", {1}}}, {.gradients = GradientInit::unzeroed});
      const Unit b = model.add_unit("b", {{"w", {1}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
      for (int step = 0; step < 3; ++step) {
        if (step == 0) {
          (void)model.forward(a);
          const auto g = model.backward(a);
          float* const gradient = g.grad("w");
          device::enqueue(g.stream(), [=] { gradient[0] = 3.0F; });
        } else {
          pass(model, {b});
        }
        model.step();
        EXPECT_DOUBLE_EQ(model.report().grad_norm, step == 0 ? 3.0 : 1.0);
      }
    };
    EXPECT_EQ(failure(2, body, world_options()), "") << to_string(strategy);
  }
}

TEST_P(OnBothStreams, UnfinishedBackwardsLeaveTheirSlotsToAnUnusedUnit) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      const Unit b = model.add_unit("b", {{"w", {9}}});
      (void)model.add_unit("c", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
      for (int step = 0; step < 3; ++step) {
        for (const Unit unit : {a, b, a, b}) { (void)model.forward(unit); }
        for (const Unit unit : {b, a}) {
          const auto g = model.backward(unit);
          add(g, "w", 1.0F);
        }
        model.step();
        EXPECT_DOUBLE_EQ(model.report().grad_norm, std::sqrt(2.0));
      }
    };
    EXPECT_EQ(failure(2, body, world_options()), "") << to_string(strategy);
  }
}

TEST(UnzeroedGradients, ASecondBackwardScopeIsRefused) {
  const auto body = [](World& world) {
    ShardedModel model{world};
    const Unit a = model.add_unit("a", {{"w", {1}}}, {.gradients = GradientInit::unzeroed});
    model.materialize(init::constant(1.0F));
    (void)model.forward(a);
    (void)model.forward(a);
    (void)model.backward(a);
    (void)model.backward(a);
  };
  EXPECT_THAT(failure(1, body), HasSubstr("unzeroed"));
}

// ------------------------------------------------------------------ refusals change nothing

TEST(Refusals, ShapesWhoseBytesOverflowAreRefused) {
  constexpr std::int64_t k62 = std::int64_t{1} << 62;
  for (const Strategy strategy : all_strategies()) {
    for (const std::int64_t elems : {k62, k62 + 4096, k62 / 2, k62 / 4, k62 - 1}) {
      EXPECT_THAT(failure(2,
                          [&](World& world) {
                            ShardedModel model{world,
                                               {.strategy = strategy,
                                                .shard_group = half_of(world.size(), strategy)}};
                            (void)model.add_unit("huge", {{"w", {elems}}});
                            model.materialize([](const ParameterInfo&, std::int64_t,
                                                 std::span<float>) { FAIL() << "allocated"; });
                          }),
                  HasSubstr("huge"))
          << elems;
    }
  }
  // Each unit is valid by itself.
  EXPECT_THAT(failure(1,
                      [&](World& world) {
                        ShardedModel model{world};
                        for (const char* name : {"a", "b", "c", "d"}) {
                          (void)model.add_unit(name, {{"w", {k62 / 4}}});
                        }
                        model.materialize([](const ParameterInfo&, std::int64_t, std::span<float>) {
                          FAIL() << "allocated";
                        });
                      }),
              ::testing::Not(HasSubstr("allocated")));
}

TEST_P(OnBothStreams, BackwardScopesBeyondTheSlotsAreRefusedAndTheModelGoesOn) {
  for (const Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
    const auto body = [&](World& world) {
      ShardedModel model{world, {.strategy = strategy, .prefetch = 3}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      const Unit b = model.add_unit("b", {{"w", {9}}});
      const Unit c = model.add_unit("c", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
      for (int step = 0; step < 3; ++step) {
        for (const Unit unit : {a, b, c}) { (void)model.forward(unit); }
        {
          const auto gc = model.backward(c);
          const auto gb = model.backward(b);
          add(gc, "w", 1.0F);
          add(gb, "w", 1.0F);
          try {
            (void)model.backward(a);
            ADD_FAILURE() << "a third gradient slot";
          } catch (const ContractError& error) {
            EXPECT_THAT(error.what(), HasSubstr("'a'"));
            EXPECT_THAT(error.what(), HasSubstr("'b'"));
          }
        }
        {
          const auto ga = model.backward(a);
          add(ga, "w", 1.0F);
        }
        model.step();
        EXPECT_DOUBLE_EQ(model.report().grad_norm, std::sqrt(3.0));
      }
    };
    EXPECT_EQ(failure(2, body, world_options()), "") << to_string(strategy);
  }
}

TEST(Refusals, AGatherWithoutASlotNamesTheDeeperPrefetch) {
  const auto with = [](int forward, int backward) {
    return failure(2, [=](World& world) {
      ShardedModel model{world,
                         {.strategy = Strategy::zero3,
                          .prefetch = forward,
                          .tuning = {.prefetch_backward = backward}}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      const Unit b = model.add_unit("b", {{"w", {9}}});
      const Unit c = model.add_unit("c", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      const auto pa = model.forward(a);
      const auto pb = model.forward(b);
      (void)model.forward(c);
    });
  };
  EXPECT_THAT(with(0, 1), HasSubstr("raise tuning.prefetch_backward (now 1)"));
  EXPECT_THAT(with(1, 0), HasSubstr("raise prefetch (now 1)"));
}

TEST(Refusals, BackwardBetweenStepsIsAlwaysRefused) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
      (void)model.forward(a);  // evaluation: no backward
      pass(model, {a});
      model.step();
      EXPECT_THROW((void)model.backward(a), ContractError);
    };
    EXPECT_EQ(failure(2, body), "") << to_string(strategy);
  }
}

struct SinkFailure : std::runtime_error {
  SinkFailure() : std::runtime_error{"the disk is full"} {}
};

TEST(Refusals, ASinkThatThrowsLeavesTheModelUnchanged) {
  for (const Strategy strategy : all_strategies()) {
    for (const UnitKind kind : {UnitKind::block, UnitKind::root}) {
      const auto body = [&](World& world) {
        ShardedModel model{world,
                           {.strategy = strategy,
                            .shard_group = half_of(world.size(), strategy),
                            .accumulate = 2,
                            .prefetch = 0,
                            .accumulate_mode = AccumulateMode::every}};
        const Unit a = model.add_unit("a", {{"w", {9}}}, {.kind = kind});
        const Unit b = model.add_unit("b", {{"w", {9}}}, {.kind = kind});
        model.materialize(init::constant(1.0F));
        model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
        const auto fail = [](const ParameterInfo&, std::span<const float>) { throw SinkFailure{}; };
        for (int step = 0; step < 3; ++step) {
          pass(model, {a, b});
          pass(model, {a, b});
          EXPECT_THROW(model.export_state(StateTensor::gradients, fail), SinkFailure);
          EXPECT_EQ(exported(model, StateTensor::gradients).at("b.w").front(), 1.0F);
          model.step();
          EXPECT_DOUBLE_EQ(model.report().grad_norm, std::sqrt(2.0));
          EXPECT_THROW(model.export_state(StateTensor::parameters, fail), SinkFailure);
          EXPECT_EQ(exported(model, StateTensor::parameters).size(), 2U);
        }
      };
      EXPECT_EQ(failure(2, body), "") << to_string(strategy);
    }
  }
}

TEST_P(OnBothStreams, AnInitializerThatThrowsLeavesTheModelDeclaredOnly) {
  for (const Strategy strategy : all_strategies()) {
    const auto body = [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      const std::size_t before = world.memory().report().live.total();
      // The initializer runs on elements: every rank with a shard throws, the others continue.
      bool threw = false;
      try {
        model.materialize([](const ParameterInfo&, std::int64_t, std::span<float>) {
          throw std::runtime_error{"no such file"};
        });
      } catch (const std::runtime_error&) { threw = true; }
      if (!threw) { return; }
      EXPECT_EQ(world.memory().report().live.total(), before);
      EXPECT_EQ(model.state_bytes(), ModelStateBytes{});
      EXPECT_THROW((void)model.forward(a), ContractError);
      EXPECT_THROW(model.optimize_with(SGD{}), ContractError);
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
      pass(model, {a});
      model.step();
      EXPECT_DOUBLE_EQ(model.report().grad_norm, 1.0);
    };
    EXPECT_EQ(failure(1, body, world_options()), "") << to_string(strategy);
  }
}

// ------------------------------------------------------------------------ ranks that disagree

TEST(Disagreement, ARankThatChangesItsOrderInALaterStepIsRefusedBeforeTheDeadline) {
  for (const Strategy strategy : all_strategies()) {
    const auto began = std::chrono::steady_clock::now();
    const auto body = [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      const Unit b = model.add_unit("b", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(SGD{});
      for (int step = 0; step < 4; ++step) {
        const bool odd = world.rank() == 1 && step == 2;
        (void)model.forward(odd ? b : a);
        (void)model.forward(odd ? a : b);
        (void)model.backward(b);
        (void)model.backward(a);
        model.step();
      }
    };
    EXPECT_THAT(failure(3, body), HasSubstr("ranks disagree on")) << to_string(strategy);
    EXPECT_LT(std::chrono::steady_clock::now() - began, kDeadline / 2) << to_string(strategy);
  }
}

TEST(Disagreement, RanksWithDifferentOptimizersLearnTheFirstDifference) {
  const auto with = [](const std::function<void(World&, ShardedModel&)>& optimize) {
    return failure(3, [&](World& world) {
      ShardedModel model{world};
      (void)model.add_unit("a", {{"w", {3, 3}}});
      model.materialize(init::constant(1.0F));
      optimize(world, model);
    });
  };
  EXPECT_THAT(with([](World& world, ShardedModel& model) {
                model.optimize_with(AdamW{.lr = world.rank() == 2 ? 0.1F : 0.2F});
              }),
              HasSubstr("lr 0.1"));
  EXPECT_THAT(with([](World& world, ShardedModel& model) {
                model.optimize_with(AdamW{}, {.clip_norm = world.rank() == 1 ? 1.0F : 0.0F});
              }),
              HasSubstr("clip"));
  EXPECT_THAT(with([](World& world, ShardedModel& model) {
                const bool decays = world.rank() == 1;
                model.optimize_with(
                    AdamW{}, {.decays = [=](std::string_view, const Shape&) { return decays; }});
              }),
              HasSubstr("a.w"));
  EXPECT_EQ(with([](World&, ShardedModel& model) { model.optimize_with(AdamW{}); }), "");
}

TEST(Report, NamesTheRateThatTheStepUsed) {
  run_ranks(2, [](World& world) {
    ShardedModel model{world};
    const Unit a = model.add_unit("a", {{"w", {9}}});
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{.lr = 0.1F});
    pass(model, {a});
    model.step();
    model.set_learning_rate(0.2F);  // for the next step
    EXPECT_EQ(model.report().lr, 0.1F);
    pass(model, {a});
    model.step();
    EXPECT_EQ(model.report().lr, 0.2F);
  });
}

}  // namespace
}  // namespace tessera::test::awkward_use_test
