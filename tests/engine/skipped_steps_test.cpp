#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

// At a limit of consecutive skipped steps the run stops and reports the origin of the first
// non-finite value.
namespace tessera::test::skipped_steps_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Outputs and gradients of three units in one micro-batch of one rank.
struct Numbers {
  std::array<float, 3> output{1.0F, 1.0F, 1.0F};
  std::array<float, 3> gradient{1.0F, 1.0F, 1.0F};
};

/// Trains units 'a', 'b' and 'c' with given values.
class Trainer {
 public:
  Trainer(World& world, const ModelOptions& options, float parameter_of_b = 1.0F)
      : model_{world, options} {
    for (const char* name : {"a", "b", "c"}) {
      units_.push_back(model_.add_unit(name, {{"w", {5}}}));
    }
    model_.materialize([=](const ParameterInfo& info, std::int64_t first, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const bool last = first + static_cast<std::int64_t>(i) == 4;
        out[i] = info.unit == "b" && last ? parameter_of_b : 1.0F;
      }
    });
    model_.optimize_with(SGD{.lr = 0.5F, .momentum = 0.0F});
  }
  void micro_batch(const Numbers& numbers) {
    for (std::size_t u = 0; u < 3; ++u) {
      const auto scope = model_.forward(units_[u]);
      scope.watch({&numbers.output[u], 1, DType::fp32});
    }
    for (std::size_t u = 3; u-- > 0;) {
      const auto scope = model_.backward(units_[u]);
      scope.grad("w")[3] += numbers.gradient[u];
    }
  }
  [[nodiscard]] ShardedModel& model() noexcept { return model_; }

 private:
  ShardedModel model_;
  std::vector<Unit> units_;
};

constexpr int kRanks = 3;
using NumbersOf = std::function<Numbers(int rank, int step, int micro_batch)>;

/// Runs up to 10 steps until NumericError. Returns its message, equal on every rank.
std::string stop(const ModelOptions& options, const NumbersOf& numbers_of,
                 float parameter_of_b = 1.0F) {
  std::array<std::string, kRanks> texts;
  run_ranks(kRanks, [&](World& world) {
    Trainer trainer{world, options, parameter_of_b};
    for (int step = 0; step < 10; ++step) {
      for (int micro = 0; micro < options.accumulate; ++micro) {
        trainer.micro_batch(numbers_of(world.rank(), step, micro));
      }
      try {
        trainer.model().step();
      } catch (const NumericError& error) {
        texts[static_cast<std::size_t>(world.rank())] = error.what();
        return;
      }
    }
  });
  for (const std::string& text : texts) { EXPECT_EQ(text, texts[0]); }
  return texts[0];
}

class Stop : public ::testing::TestWithParam<Strategy> {
 protected:
  static ModelOptions options(std::int64_t max_skips = 3) {
    return {
        .strategy = GetParam(), .shard_group = half_of(kRanks, GetParam()), .max_skips = max_skips};
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, Stop, ::testing::ValuesIn(all_strategies()),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(Stop, NamesTheUnitWithTheFirstNonFiniteOutput) {
  const std::string text = stop(options(), [](int rank, int step, int) {
    Numbers numbers;
    if (rank != 1 || step < 2) { return numbers; }
    numbers.output = {1.0F, kNan, kNan};
    numbers.gradient = {kNan, kNan, kNan};
    return numbers;
  });
  EXPECT_THAT(text, AllOf(HasSubstr("step 5: "), HasSubstr("3rd time in a row"),
                          HasSubstr("steps skipped: 3"), HasSubstr("loss scale 1"),
                          HasSubstr("output of unit 'b' on rank 1;")));
}

TEST_P(Stop, NamesTheUnitWhoseGradientWasTheFirstInBackwardOrder) {
  const std::string text = stop(options(), [](int rank, int, int) {
    Numbers numbers;
    if (rank == 2) { numbers.gradient = {kInfinity, -kInfinity, 1.0F}; }
    if (rank == 0) { numbers.gradient = {kInfinity, 1.0F, 1.0F}; }
    return numbers;
  });
  EXPECT_THAT(text, AllOf(HasSubstr("step 3: "), HasSubstr("gradients of unit 'b' on rank 2;")));
}

TEST_P(Stop, NamesANonFiniteParameterWhateverWasWatched) {
  const auto numbers = [](int, int, int) {
    return Numbers{.output = {1.0F, kNan, kNan}, .gradient = {kNan, kNan, 1.0F}};
  };
  EXPECT_THAT(stop(options(), numbers, kInfinity),
              HasSubstr("parameters of unit 'b' on all 3 ranks;"));
}

TEST_P(Stop, NamesTheMicroBatchAndTheRanks) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ModelOptions with = options();
    with.accumulate = 3;
    with.accumulate_mode = mode;
    const std::string text = stop(with, [](int rank, int, int micro) {
      Numbers numbers;
      if (micro == 1 && rank != 1) { numbers.gradient[2] = kNan; }
      if (micro == 2) { numbers.output[0] = kNan; }
      return numbers;
    });
    EXPECT_THAT(text, HasSubstr("gradients of unit 'c' on ranks 0, 2, in micro-batch 2 of 3;"));
  }
}

TEST_P(Stop, SaysThatOnlyTheSumIsNotFinite) {
  const std::string text =
      stop(options(), [](int, int, int) { return Numbers{.gradient = {1.0F, 3e38F, 1.0F}}; });
  EXPECT_THAT(text, AllOf(HasSubstr("of each rank are finite"), HasSubstr("sum in fp32")));
}

TEST_P(Stop, SaysWhereAndInWhichDtypeTheSumIsMade) {
  ModelOptions with = options();
  with.accumulate = 2;
  with.accumulate_mode = AccumulateMode::every;
  with.reduce = DType::bf16;
  const std::string text =
      stop(with, [](int, int, int) { return Numbers{.gradient = {1.0F, 1.8e38F, 1.0F}}; });
  EXPECT_THAT(text, HasSubstr("sum over ranks and micro-batches in bf16"));
}

TEST_P(Stop, ComesAfterExactlyTheGivenSkipsAndNeverWithZero) {
  const auto bad_from = [](int first, int but) {
    return [=](int, int step, int) {
      Numbers numbers;
      if (step >= first && step != but) { numbers.gradient[0] = kInfinity; }
      return numbers;
    };
  };
  for (const int skips : {1, 2, 4}) {
    EXPECT_THAT(stop(options(skips), bad_from(2, -1)),
                HasSubstr("step " + std::to_string(2 + skips) + ": "));
    EXPECT_THAT(stop(options(skips), bad_from(2, -1)), HasSubstr("gradients of unit 'a'"));
  }
  EXPECT_THAT(stop(options(3), bad_from(0, 2)), HasSubstr("step 6: ")) << "a good step between";
  EXPECT_EQ(stop(options(0), bad_from(0, -1)), "");
  EXPECT_EQ(stop(options(25), bad_from(0, -1)), "") << "ten are fewer than the default";
}

TEST_P(Stop, LeavesAUsableModel) {
  run_ranks(2, [](World& world) {
    Trainer trainer{world, options(2)};
    const auto before = exported(trainer.model(), StateTensor::parameters);
    const Numbers bad{.gradient = {kNan, 1.0F, 1.0F}};
    trainer.micro_batch(bad);
    EXPECT_NO_THROW(trainer.model().step());
    for (int again = 0; again < 2; ++again) {  // every further step throws too
      trainer.micro_batch(bad);
      EXPECT_THROW(trainer.model().step(), NumericError);
      EXPECT_EQ(trainer.model().report().skipped_in_a_row, 2 + again);
    }
    EXPECT_EQ(exported(trainer.model(), StateTensor::parameters), before);
    trainer.micro_batch({});
    EXPECT_NO_THROW(trainer.model().step());
    EXPECT_EQ(trainer.model().report().skipped_in_a_row, 0);
    EXPECT_EQ(exported(trainer.model(), StateTensor::parameters).at("a.w")[3], 0.5F);
  });
}

// run_ranks throws the same type, with a rank.
TEST(StopOfAJob, IsANumericErrorOfTheLowestRank) {
  try {
    run_ranks(2, [](World& world) {
      Trainer trainer{world, {.max_skips = 1}};
      trainer.micro_batch({.output = {kNan, 1.0F, 1.0F}, .gradient = {kNan, 1.0F, 1.0F}});
      trainer.model().step();
    });
    ADD_FAILURE() << "went on";
  } catch (const NumericError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 0: step 1: "), HasSubstr("'a' on all 2 ranks")));
  }
}

TEST(StopOfAJob, SaysThatTheOriginWasNotLookedForIfTheOptimizerCameLate) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world, {.max_skips = 1}};
    const Unit unit = model.add_unit("a", {{"w", {5}}});
    model.materialize(init::constant(1.0F));
    (void)model.forward(unit);
    model.backward(unit).grad("w")[0] = kNan;
    model.optimize_with(SGD{});
    try {
      model.step();
      ADD_FAILURE() << "went on";
    } catch (const NumericError& error) {
      EXPECT_THAT(error.what(), HasSubstr("was not searched for"));
    }
  });
}

// The pointer is invalid, so any read would crash.
TEST(Watch, ChecksNothingUnlessTheNextSkippedStepIsTheLast) {
  run_ranks(2, [](World& world) {
    ShardedModel model{world, {.max_skips = 4}};
    const Unit unit = model.add_unit("a", {{"w", {5}}});
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{});
    for (int step = 0; step < 3; ++step) {
      const auto* const nowhere = reinterpret_cast<const void*>(std::uintptr_t{64});
      model.forward(unit).watch({nowhere, 1'000'000, DType::fp32});
      model.backward(unit).grad("w")[0] = kNan;
      model.step();
    }
    EXPECT_EQ(model.report().skipped_in_a_row, 3);
    const float bad = kNan;
    model.forward(unit).watch({&bad, 1, DType::fp32});
    (void)model.backward(unit);
    model.step();
    EXPECT_FALSE(model.report().skipped) << "an output alone skips nothing";
  });
}

// The search for the first NaN would read it, steps later.
TEST(Watch, RefusesAnOutputThatCannotBe) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world};
    const Unit unit = model.add_unit("a", {{"w", {5}}});
    model.materialize(init::constant(1.0F));
    const ForwardScope scope = model.forward(unit);
    const float some = 1.0F;
    EXPECT_THROW(scope.watch({nullptr, 10, DType::fp32}), ContractError);
    EXPECT_THROW(scope.watch({&some, -1, DType::fp32}), ContractError);
    EXPECT_THROW(scope.watch({&some, 1, static_cast<DType>(77)}), ContractError);
    EXPECT_NO_THROW(scope.watch({nullptr, 0, DType::fp32}));
  });
}

constexpr nn::DecoderConfig kConfig{.layers = 3, .hidden = 12, .heads = 2, .vocab = 23, .seq = 8};

/// Trains a GPT until it stops. One element of the parameters of `unit` whose names end with
/// `ending` is `value`.
std::string stop_of_gpt(const ModelOptions& options, const std::string& unit,
                        const std::string& ending, float value) {
  std::string text;
  try {
    run_ranks(2, [&](World& world) {
      auto gpt = shard(nn::Decoder(kConfig), world, options);
      const Initializer usual = gpt.module().initializer(3);
      gpt.materialize([&](const ParameterInfo& info, std::int64_t first, std::span<float> out) {
        usual(info, first, out);
        if (info.unit == unit && info.name.ends_with(ending) && first == 0) { out[0] = value; }
      });
      gpt.optimize_with(AdamW{});
      const std::vector<std::int32_t> tokens(2 * 8, 5);
      for (int step = 0; step < 5; ++step) {
        gpt.forward_backward(tokens, tokens);
        gpt.step();
      }
    });
  } catch (const NumericError& error) { text = error.what(); }
  return text;
}

TEST(StopOfGPT, NamesEmbeddingBlockOrHead) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    const ModelOptions options{.strategy = strategy, .max_skips = 2};
    EXPECT_THAT(stop_of_gpt(options, "h.1", "mlp.c_fc.weight", kInfinity),
                HasSubstr("parameters of unit 'h.1' on all 2 ranks"));
    EXPECT_THAT(stop_of_gpt(options, "h.1", "c_proj.bias", 3e38F),
                HasSubstr("output of unit 'h.1' on all 2 ranks"))
        << "3e38 + 3e38";
    EXPECT_THAT(stop_of_gpt(options, "root", "wte.weight", kNan),
                HasSubstr("parameters of unit 'root'"));
  }
}

}  // namespace
}  // namespace tessera::test::skipped_steps_test
