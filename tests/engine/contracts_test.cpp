#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/groups.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::contracts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The error that `body` throws on `ranks` ranks; empty if none.
template <class Expected>
std::string refusal(int ranks, const std::function<void(World&)>& body,
                    const WorldOptions& options = {}) {
  try {
    run_ranks(ranks, body, options);
  } catch (const Expected& error) { return error.what(); }
  return {};
}

struct Small {
  explicit Small(World& world, const ModelOptions& options = {}) : model{world, options} {
    unit = model.add_unit("fc", {{"weight", {3, 5}}, {"bias", {5}, /*trainable=*/false}});
    other = model.add_unit("fc2", {{"weight", {5, 2}}});
    model.materialize(init::normal(1, 0.1F));
    model.optimize_with(SGD{.lr = 0.5F, .momentum = 0.0F});
  }
  void pass(float gradient = 1.0F) {
    (void)model.forward(unit);
    (void)model.forward(other);
    {
      const auto g = model.backward(other);
      g.grad("weight")[0] += gradient;
    }
    const auto g = model.backward(unit);
    g.grad("weight")[0] += gradient;
  }
  ShardedModel model;
  Unit unit;
  Unit other;
};

// A forgotten backward pass trains with zeros. The report names the unit; Checks::strict refuses.
TEST(StepReport, NamesTheUnitsWhoseMissingGradientsCountedAsZeros) {
  run_ranks(2, [](World& world) {
    Small small{world, {.strategy = Strategy::zero2}};
    (void)small.model.forward(small.unit);
    (void)small.model.forward(small.other);
    (void)small.model.backward(small.other);
    small.model.step();
    EXPECT_THAT(small.model.report().without_backward, ::testing::ElementsAre("fc"));
    small.pass();
    small.model.step();
    EXPECT_THAT(small.model.report().without_backward, ::testing::IsEmpty());
    EXPECT_THAT(small.model.previous_report().without_backward, ::testing::ElementsAre("fc"));
    small.model.freeze(small.unit, "weight");  // its only trained parameter
    (void)small.model.forward(small.unit);
    (void)small.model.forward(small.other);
    (void)small.model.backward(small.other);
    small.model.step();
    EXPECT_THAT(small.model.report().without_backward, ::testing::IsEmpty());
  });
}

TEST(Declaration, RepeatedUnitsAndParametersAreNamed) {
  EXPECT_THAT(refusal<ContractError>(1,
                                     [](World& world) {
                                       ShardedModel model{world};
                                       (void)model.add_unit("a", {{"w", {1}}});
                                       (void)model.add_unit("a", {{"w", {1}}});
                                     }),
              HasSubstr("'a'"));
  EXPECT_THAT(refusal<ContractError>(1,
                                     [](World& world) {
                                       ShardedModel model{world};
                                       (void)model.add_unit("a", {{"w", {1}}, {"w", {2}}});
                                     }),
              HasSubstr("w"));
}

TEST(Declaration, ATieNeedsAnEarlierOwnerOfTheSameShape) {
  const auto tie = [](const char* unit, Shape shape) {
    return refusal<ContractError>(1, [&](World& world) {
      ShardedModel model{world};
      (void)model.add_unit("a", {{"w", {2, 3}}});
      (void)model.add_unit("b", {{.name = "w", .shape = shape, .tied_to = TiedTo{unit, "w"}}});
    });
  };
  EXPECT_THAT(tie("c", {2, 3}), HasSubstr("'c.w'"));
  EXPECT_THAT(tie("b", {2, 3}), HasSubstr("'b.w'"));
  EXPECT_THAT(tie("a", {3, 2}), HasSubstr("[3, 2]"));
  EXPECT_EQ(tie("a", {2, 3}), "");
}

TEST(Declaration, AnAliasCannotFreezeWhatItsOwnerTrains) {
  const auto tie = [](bool owner_trains, bool alias_trains) {
    return refusal<ContractError>(1, [&](World& world) {
      ShardedModel model{world};
      (void)model.add_unit("a", {{"w", {2}, owner_trains}});
      (void)model.add_unit(
          "b",
          {{.name = "w", .shape = {2}, .trainable = alias_trains, .tied_to = TiedTo{"a", "w"}}});
    });
  };
  EXPECT_THAT(tie(true, false), HasSubstr("'a.w', which decides"));
  EXPECT_EQ(tie(true, true), "");
  EXPECT_EQ(tie(false, true), "");
  EXPECT_EQ(tie(false, false), "");
}

// options_test checks the rules themselves.
TEST(Declaration, TheFirstCallThatCanKnowRefusesOptions) {
  std::string call;
  const auto refused = [&](ModelOptions options, UnitOptions own = {}, OptimizerOptions rule = {}) {
    return refusal<ConfigError>(1, [&](World& world) {
      call = "constructor";
      ShardedModel model{world, options};
      call = "add_unit";
      (void)model.add_unit("a", {{"w", {100}}}, own);
      call = "materialize";
      model.materialize(init::constant(1.0F));
      call = "optimize_with";
      model.optimize_with(AdamW{}, rule);
      call = "none";
    });
  };
  const auto by = [&](const char* expected, const std::string& text, const std::string& part) {
    EXPECT_EQ(call, expected) << text;
    EXPECT_THAT(text, HasSubstr(part));
  };
  by("constructor", refused({.accumulate = 0}), "`accumulate` is 0");
  by("constructor", refused({.shard_group = 1}), "`shard_group` has no effect");
  by("add_unit", refused({}, {.reshard = Reshard::after_forward}), "`reshard` has no effect");
  by("materialize", refused({.strategy = Strategy::zero3, .persist_elems = 9}), "100 elements");
  by("optimize_with", refused({}, {}, {.moments = MomentFormat::int8}), ".align_elems = 256");
  by("optimize_with", refused({}, {}, {.rounding = Rounding::stochastic}), "`rounding`");
  by("none", refused({}), "");
}

TEST(Declaration, RanksThatDeclareDifferentModelsLearnTheFirstDifference) {
  const std::string text = refusal<ContractError>(3, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero3}};
    (void)model.add_unit("a", {{"w", {4}}});
    (void)model.add_unit("b", {{"w", {world.rank() == 2 ? 5 : 4}}});
    model.materialize(init::constant(0.0F));
  });
  EXPECT_THAT(text, HasSubstr("rank 2"));
  EXPECT_THAT(text, HasSubstr("[5]"));
}

TEST(Order, CallsOutOfOrderAreRefusedAndTheModelGoesOn) {
  run_ranks(2, [](World& world) {
    ShardedModel bare{world};
    EXPECT_THROW(bare.materialize(init::constant(0)), ContractError);
    const Unit unit = bare.add_unit("a", {{"w", {4}}});
    EXPECT_THROW((void)bare.forward(unit), ContractError);
    EXPECT_THROW(bare.optimize_with(SGD{}), ContractError);
    bare.materialize(init::constant(0));
    EXPECT_THROW((void)bare.add_unit("b", {}), ContractError);
    EXPECT_THROW(bare.step(), ContractError);
    EXPECT_THROW((void)bare.report(), ContractError);

    Small small{world, {.strategy = Strategy::zero3, .accumulate = 2}};
    EXPECT_THROW((void)small.model.backward(small.unit), ContractError);
    EXPECT_THROW(small.model.step(), ContractError);
    small.pass();
    EXPECT_THROW(small.model.step(), ContractError);  // 1 of 2 micro-batches
    small.pass();
    EXPECT_THROW((void)small.model.forward(small.unit), ContractError);  // a third
    EXPECT_THROW((void)small.model.backward(small.unit), ContractError);
    small.model.step();
    EXPECT_EQ(small.model.report().step, 1);
  });
}

TEST(Scopes, UnknownNamesAreAnsweredWithTheKnownOnes) {
  run_ranks(1, [](World& world) {
    Small small{world};
    {
      const auto p = small.model.forward(small.unit);
      try {
        (void)p["wieght"];
        FAIL();
      } catch (const ContractError& error) { EXPECT_THAT(error.what(), HasSubstr("weight bias")); }
    }
    const auto g = small.model.backward(small.unit);
    EXPECT_FALSE(g.has_grad("bias"));
    EXPECT_THROW((void)g.grad("bias"), ContractError);
    EXPECT_EQ(g["bias"].shape(), (Shape{5}));
  });
}

// Holds for every strategy, even where the memory stays in place.
TEST(Scopes, ATensorUsedAfterItsScopeIsNamedByCategoryAndUnit) {
  const auto use_late = [](Strategy strategy) {
    return refusal<ContractError>(2, [&](World& world) {
      Small small{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      const auto weight = small.model.forward(small.unit)["weight"];
      (void)small.model.forward(small.other);
      (void)static_cast<const float*>(weight)[0];
    });
  };
  EXPECT_THAT(use_late(Strategy::zero3), HasSubstr("gather tensor of unit 'fc'"));
  EXPECT_THAT(use_late(Strategy::ddp), HasSubstr("parameters tensor of unit 'fc'"));
  EXPECT_THAT(refusal<ContractError>(2,
                                     [](World& world) {
                                       Small small{world, {.strategy = Strategy::zero2}};
                                       (void)small.model.forward(small.unit);
                                       const auto grad =
                                           small.model.backward(small.unit).grad("weight");
                                       static_cast<float*>(grad)[0] = 1.0F;
                                     }),
              HasSubstr("reduce tensor of unit 'fc'"));
}

// Types cannot detect a write through a kept pointer. Poison detects it at the slot's next use.
TEST(Scopes, AWriteThroughAKeptPointerIsNamedByCategoryAndUnit) {
  const std::string refused =
      refusal<ContractError>(1,
                             [](World& world) {
                               Small small{world, {.strategy = Strategy::zero2}};
                               (void)small.model.forward(small.unit);
                               float* kept = nullptr;
                               {
                                 const auto g = small.model.backward(small.unit);
                                 kept = g.grad("weight");
                               }
                               world.reduce_channel().stream.wait();
                               kept[0] = 1.0F;
                               for (int step = 0; step < 2; ++step) {
                                 small.model.step();
                                 small.pass();
                               }
                             },
                             {.testing = {.poison = SlotPoison::nan}});
  EXPECT_THAT(refused, HasSubstr("the reduce slot of fc was written after its release"));
}

TEST(Scopes, ALeakedScopeIsNamedByCategoryAndUnit) {
  const auto leak_forward = [](Strategy strategy) {
    return refusal<ContractError>(2, [&](World& world) {
      Small small{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      small.pass();
      small.model.step();
      const auto leaked = small.model.forward(small.unit);
      small.model.step();
    });
  };
  EXPECT_THAT(leak_forward(Strategy::zero3), HasSubstr("step: a scope is still open and holds the "
                                                       "memory of unit 'fc' (gather);"));
  EXPECT_THAT(leak_forward(Strategy::ddp), HasSubstr("unit 'fc' (parameters);"));
  EXPECT_THAT(refusal<ContractError>(2,
                                     [](World& world) {
                                       Small small{world, {.strategy = Strategy::zero3}};
                                       (void)small.model.forward(small.other);
                                       const auto leaked = small.model.backward(small.other);
                                       small.model.step();
                                     }),
              HasSubstr("unit 'fc2' (gather, reduce);"));
}

TEST(Scopes, AUnitIsOpenedOnceAtATime) {
  run_ranks(1, [](World& world) {
    Small small{world};
    const auto p = small.model.forward(small.unit);
    EXPECT_THROW((void)small.model.forward(small.unit), ContractError);
  });
}

TEST(Scopes, MoreOpenBlocksThanSlotsAreRefusedWithTheNamesOfTheHolders) {
  const std::string text = refusal<ContractError>(2, [](World& world) {
    Small small{world, {.strategy = Strategy::zero3, .prefetch = 0}};
    const auto p = small.model.forward(small.unit);
    const auto q = small.model.forward(small.other);
  });
  EXPECT_THAT(text, HasSubstr("'fc2'"));
  EXPECT_THAT(text, HasSubstr("'fc'"));
  EXPECT_THAT(text, HasSubstr("prefetch"));
  // Both can be open if each has a slot.
  run_ranks(2, [](World& world) {
    Small small{world, {.strategy = Strategy::zero3, .prefetch = 1}};
    const auto p = small.model.forward(small.unit);
    const auto q = small.model.forward(small.other);
  });
}

TEST(Scopes, AnExceptionInAScopeEndsTheModelAndIsTheCauseReported) {
  const std::string text = refusal<Error>(4, [](World& world) {
    Small small{world, {.strategy = Strategy::zero3}};
    for (int step = 0; step < 3; ++step) {
      const auto p = small.model.forward(small.unit);
      if (world.rank() == 2 && step == 0) { throw std::runtime_error{"bad batch"}; }
    }
    small.pass();
  });
  EXPECT_THAT(text, HasSubstr("rank 2"));
  EXPECT_THAT(text, HasSubstr("bad batch"));

  run_ranks(1, [](World& world) {
    Small small{world};
    try {
      const auto p = small.model.forward(small.unit);
      throw std::runtime_error{"caught by the trainer"};
    } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch): thrown above
    }
    EXPECT_THROW((void)small.model.forward(small.unit), ContractError);
  });
}

TEST(Order, ADivergingRankIsAnErrorThatNamesTheUnits) {
  for (const Strategy strategy : all_strategies()) {
    const std::string text = refusal<Error>(
        3,
        [&](World& world) {
          Small small{world,
                      {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
          const bool odd = world.rank() == 1;
          (void)small.model.forward(odd ? small.other : small.unit);
          (void)small.model.forward(odd ? small.unit : small.other);
          (void)small.model.backward(odd ? small.unit : small.other);
          (void)small.model.backward(odd ? small.other : small.unit);
          small.model.step();
        },
        {.deadline = std::chrono::seconds{20}});
    EXPECT_THAT(text, HasSubstr("fc2")) << to_string(strategy);
    EXPECT_THAT(text, HasSubstr("rank")) << to_string(strategy);
  }
}

TEST(Order, ChangingTheOrderBetweenStepsChangesNoResult) {
  const auto run = [](Strategy strategy) {
    std::map<std::string, std::vector<float>> parameters;
    run_ranks(2, [&](World& world) {
      Small small{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      for (int step = 0; step < 6; ++step) {
        const bool swapped = step % 3 == 2;
        const Unit a = swapped ? small.other : small.unit;
        const Unit b = swapped ? small.unit : small.other;
        (void)small.model.forward(a);
        (void)small.model.forward(b);
        for (const Unit unit : {b, a}) {
          const auto g = small.model.backward(unit);
          g.grad("weight")[1] += g["weight"].data() == nullptr ? 0.0F : 0.25F;
        }
        small.model.step();
      }
      auto all = exported(small.model, StateTensor::parameters);
      if (world.rank() == 0) { parameters = std::move(all); }
    });
    return parameters;
  };
  EXPECT_EQ(run(Strategy::ddp), run(Strategy::zero3));
}

TEST(Order, AUnitLeftOutOfAStepReducesAsZeros) {
  for (const Strategy strategy : all_strategies()) {
    for (const int accumulate : {1, 2}) {
      run_ranks(2, [&](World& world) {
        Small small{world,
                    {.strategy = strategy,
                     .shard_group = half_of(world.size(), strategy),
                     .accumulate = accumulate}};
        for (int step = 0; step < 3; ++step) {
          for (int micro = 0; micro < accumulate; ++micro) {
            (void)small.model.forward(small.unit);
            const auto g = small.model.backward(small.unit);
            g.grad("weight")[0] += 2.0F;
          }
          small.model.step();
          EXPECT_DOUBLE_EQ(small.model.report().grad_norm, 2.0) << to_string(strategy);
        }
      });
    }
  }
}

TEST(Step, ABlockUsedTwiceInAForwardIsReducedOnce) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2, [&](World& world) {
      Small small{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
      for (int step = 0; step < 3; ++step) {
        (void)small.model.forward(small.unit);
        (void)small.model.forward(small.other);
        (void)small.model.forward(small.unit);
        for (const Unit unit : {small.unit, small.other, small.unit}) {
          const auto g = small.model.backward(unit);
          g.grad("weight")[0] += 1.0F;
        }
        small.model.step();
        EXPECT_DOUBLE_EQ(small.model.report().grad_norm, std::sqrt(5.0)) << to_string(strategy);
      }
    });
  }
}

TEST(Step, AGradientThatIsNotFiniteOnOneRankSkipsTheUpdateOnAll) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const Strategy strategy : all_strategies()) {
      run_ranks(3, [&](World& world) {
        Small small{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
        const auto before = exported(small.model, StateTensor::parameters);
        small.pass(world.rank() == 1 ? bad : 1.0F);
        small.model.step();
        EXPECT_TRUE(small.model.report().skipped);
        EXPECT_EQ(exported(small.model, StateTensor::parameters), before);
        small.pass(1.0F);
        small.model.step();
        EXPECT_FALSE(small.model.report().skipped);
        EXPECT_NE(exported(small.model, StateTensor::parameters), before);
      });
    }
  }
}

TEST(Step, TheLossIsAveragedOverRanksInRankOrder) {
  run_ranks(3, [](World& world) {
    Small small{world};
    small.pass();
    const double loss = 0.1 * (world.rank() + 1);
    small.model.step(&loss);
    EXPECT_EQ(small.model.report().loss, ((0.1 * 1 + 0.1 * 2) + 0.1 * 3) / 3);
  });
}

TEST(Step, UnzeroedGradientsAreOverwrittenNotAdded) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2,
              [&](World& world) {
                ShardedModel model{
                    world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
                const Unit unit = model.add_unit("a", {{"v", {3}}, {"w", {5}}},
                                                 {.gradients = GradientInit::unzeroed});
                model.materialize(init::constant(1.0F));
                model.optimize_with(SGD{.lr = 0.0F, .momentum = 0.0F});
                for (int step = 0; step < 3; ++step) {
                  (void)model.forward(unit);
                  {
                    const auto g = model.backward(unit);
                    for (int i = 0; i < 3; ++i) { g.grad("v")[i] = 1.0F; }
                    for (int i = 0; i < 5; ++i) { g.grad("w")[i] = 1.0F; }
                  }
                  model.step();
                  EXPECT_DOUBLE_EQ(model.report().grad_norm, std::sqrt(8.0));
                }
              },
              {.testing = {.poison = SlotPoison::nan}});
  }
  EXPECT_THAT(refusal<ConfigError>(2,
                                   [](World& world) {
                                     ShardedModel model{world, {.accumulate = 2}};
                                     (void)model.add_unit("a", {{"v", {3}}},
                                                          {.gradients = GradientInit::unzeroed});
                                     model.materialize(init::constant(1.0F));
                                   }),
              HasSubstr("unzeroed"));
}

TEST(Initialisation, IsTheSameForEveryWorldSizeAndStrategy) {
  std::map<std::string, std::vector<float>> expected;
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Strategy strategy : all_strategies()) {
      run_ranks(ranks, [&](World& world) {
        ToyModel toy{
            world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}, {}};
        const auto all = exported(toy.model(), StateTensor::parameters);
        if (world.rank() != 0) { return; }
        if (expected.empty()) { expected = all; }
        EXPECT_EQ(all, expected) << ranks << " " << to_string(strategy);
      });
    }
  }
  EXPECT_EQ(expected.size(), 1U + 3U * 3U + 1U);
}

TEST(Initialisation, EachRankAsksOnlyForItsShard) {
  run_ranks(4, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero3}};
    (void)model.add_unit("a", {{"w", {1000}}});
    std::int64_t asked = 0;
    model.materialize([&](const ParameterInfo&, std::int64_t first, std::span<float> out) {
      EXPECT_GE(first, 256 * world.rank());
      asked += std::ssize(out);
    });
    EXPECT_EQ(asked, world.rank() < 3 ? 256 : 1000 - 3 * 256);
  });
}

TEST(Initialisation, TheDeviceDrawsTheInitializersValues) {
  using init::Distribution;
  const init::Drawn drawn{9, [](const ParameterInfo& parameter) {
                            return parameter.name == "bias"
                                       ? Distribution{Distribution::Kind::constant, 0.5F}
                                       : Distribution{Distribution::Kind::normal, 0.02F};
                          }};
  const auto on_the_host = [drawn](const ParameterInfo& parameter, std::int64_t first,
                                   std::span<float> out) { drawn(parameter, first, out); };
  run_ranks(3, [&](World& world) {
    std::vector<std::map<std::string, std::vector<float>>> states;
    for (const Initializer& initial : {Initializer{drawn}, Initializer{on_the_host}}) {
      ShardedModel model{world, {.strategy = Strategy::zero3, .compute = DType::bf16}};
      (void)model.add_unit("a", {{"w", {1001}}, {"bias", {77}}, {"v", {333}}});
      model.materialize(initial);
      states.push_back(exported(model, StateTensor::parameters));
      std::vector<float>& masters = states.back()["masters"];
      model.export_masters([&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
        masters.insert(masters.end(), values.begin(), values.end());
      });
    }
    EXPECT_EQ(states[0], states[1]);
  });
}

// No normal number that is drawn is beyond 6.6604: -2 log of at least 2^-32, under a root. Rank 1
// keeps none of the parameter.
TEST(Initialisation, RefusesNormalsThatMayBecomeInfiniteOnAllRanks) {
  struct Case {
    DType compute;
    float accepted;
    float refused;
  };
  for (const Case& c :
       {Case{DType::fp16, 9'800.0F, 9'900.0F}, Case{DType::bf16, 5.09e37F, 5.105e37F},
        Case{DType::fp32, 5.1e37F, 5.2e37F}}) {
    SCOPED_TRACE(to_string(c.compute));
    run_ranks(2, [&](World& world) {
      const auto materialize = [&](const Initializer& initial) {
        ShardedModel model{world, {.strategy = Strategy::zero3, .compute = c.compute}};
        (void)model.add_unit("a",
                             {{"w", {1}}, {.name = "wide", .shape = {1}, .dtype = DType::fp32}});
        model.materialize(initial);
      };
      EXPECT_NO_THROW(materialize(init::normal(1, c.accepted)));
      EXPECT_THAT(
          message_of<ConfigError>([&] { materialize(init::normal(1, c.refused)); }),
          AllOf(HasSubstr("the initial values of 'a.w' are drawn with a standard deviation"),
                HasSubstr("beyond the range of " + std::string{to_string(c.compute)})));
      const init::Drawn nan{1, [](const ParameterInfo&) {
                              return init::Distribution{init::Distribution::Kind::normal,
                                                        std::nanf("")};
                            }};
      EXPECT_THROW(materialize(nan), ContractError);
    });
  }
}

TEST(Initialisation, NormalNumbersHaveTheirMomentsAndDoNotDependOnTheCut) {
  std::vector<float> all(40'001);
  init::fill_normal(7, 3, 0, 2.0F, all);
  double sum = 0.0;
  double square = 0.0;
  for (const float x : all) {
    sum += x;
    square += static_cast<double>(x) * x;
  }
  // bound: five standard deviations of a mean, 2 / 200, and of a deviation, 2 / 283
  EXPECT_NEAR(sum / 40'001, 0.0, 0.05);
  // bound: as above
  EXPECT_NEAR(std::sqrt(square / 40'001), 2.0, 0.05);
  for (const std::size_t first : {1U, 2U, 3U, 4U, 777U}) {
    std::vector<float> part(333);
    init::fill_normal(7, 3, static_cast<std::int64_t>(first), 2.0F, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<long>(first)));
  }
  std::vector<float> other(100);
  init::fill_normal(7, 4, 0, 2.0F, other);
  EXPECT_FALSE(std::equal(other.begin(), other.end(), all.begin()));
}

TEST(Strategies, NamesRoundTripAndUnknownOnesListTheKnown) {
  for (const Strategy strategy : all_strategies()) {
    EXPECT_EQ(parse_strategy(to_string(strategy)), strategy);
  }
  EXPECT_EQ(parse_strategy("fsdp"), Strategy::zero3);
  try {
    (void)parse_strategy("zero4");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("zero4"));
    EXPECT_THAT(error.what(), HasSubstr("zero3"));
  }
  EXPECT_THROW((void)parse_strategy(""), ConfigError);
}

TEST(AccumulateModes, NamesRoundTripAndOthersAreRefused) {
  for (const AccumulateMode mode :
       {AccumulateMode::automatic, AccumulateMode::every, AccumulateMode::deferred}) {
    EXPECT_EQ(parse_accumulate_mode(to_string(mode)), mode);
  }
  EXPECT_THROW((void)parse_accumulate_mode("sometimes"), ConfigError);
  EXPECT_THROW((void)parse_accumulate_mode(""), ConfigError);
}

}  // namespace
}  // namespace tessera::test::contracts_test
