#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "device/cpu/host_task.hpp"
#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/profile/job_memory.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::evaluation_test {
namespace {

using ::testing::HasSubstr;

constexpr int kRows = 2;

/// The error that `call` throws.
template <class Kind, class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Kind& error) { return error.what(); }
  ADD_FAILURE() << "not refused";
  return {};
}

/// An evaluation that ends on request.
struct Held {
  explicit Held(ShardedModel& model) : evaluation{model.evaluate()} {}
  Evaluation evaluation;
};

/// A training run, with or without an evaluation before each step.
struct Case {
  Strategy strategy = Strategy::ddp;
  int ranks = 1;
  int passes = 0;
  int accumulate = 1;
  bool declared = false;
  std::optional<DelayInjection> delays = {};
};

struct Outcome {
  std::map<std::string, std::vector<float>> parameters;
  std::vector<double> losses;     // rank 0's, per micro-batch
  std::vector<double> evaluated;  // rank 0's, on the rows of the next micro-batches
  std::size_t peak = 0;           // rank 0's
  ModelStateBytes state;
};

std::vector<double> evaluate(ToyModel& toy, std::int64_t row, int passes) {
  std::vector<double> losses;
  auto evaluation = toy.model().evaluate();
  for (int pass = 0; pass < passes; ++pass) {
    losses.push_back(toy.forward(row + pass, kRows));
    if (pass + 1 < passes) { evaluation.end_pass(); }
  }
  return losses;
}

Outcome train(const Case& c) {
  Outcome outcome;
  const auto body = [&](World& world) {
    ToyModel toy{world,
                 {.strategy = c.strategy,
                  .shard_group = half_of(c.ranks, c.strategy),
                  .accumulate = c.accumulate},
                 {.batch = kRows, .declared_order = c.declared}};
    if (c.passes > 0) { (void)evaluate(toy, 1000, c.passes); }  // before the optimizer exists
    toy.model().optimize_with(AdamW{.lr = 0.02F}, {.clip_norm = 0.5F});
    std::vector<double> losses;
    std::vector<double> evaluated;
    for (int step = 0; step < 5; ++step) {
      const std::int64_t row = 10 * step + world.rank() * kRows;
      if (c.passes > 0) {
        for (const double loss : evaluate(toy, row, c.passes)) { evaluated.push_back(loss); }
      }
      for (int micro = 0; micro < c.accumulate; ++micro) {
        losses.push_back(toy.forward_backward(row + micro, kRows));
      }
      toy.model().step(&losses.back());
    }
    auto parameters = exported(toy.model(), StateTensor::parameters);
    if (world.rank() != 0) { return; }
    outcome = {std::move(parameters), losses, evaluated, world.memory().report().peak_bytes,
               toy.model().state_bytes()};
  };
  run_ranks(c.ranks, body, {.testing = {.poison = SlotPoison::nan, .delays = c.delays}});
  return outcome;
}

class EvaluationOf : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EvaluationOf, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(EvaluationOf, BetweenStepsItChangesNoBitAndNoByteOfTheTraining) {
  for (const Strategy strategy : all_strategies()) {
    for (const bool declared : {false, true}) {
      Case c{.strategy = strategy, .ranks = GetParam(), .accumulate = 2, .declared = declared};
      const Outcome without = train(c);
      c.passes = 2;
      c.delays = DelayInjection{.seed = 3, .longest = std::chrono::microseconds{100}};
      const Outcome with = train(c);
      EXPECT_EQ(with.parameters, without.parameters) << to_string(strategy);
      EXPECT_EQ(with.losses, without.losses) << to_string(strategy);
      EXPECT_EQ(with.peak, without.peak) << to_string(strategy);
      // The two passes use the rows of the next two micro-batches.
      EXPECT_EQ(with.evaluated, with.losses) << to_string(strategy);
    }
  }
}

// ------------------------------------------------------------------------------------ inference

TEST_P(EvaluationOf, AModelForInferenceComputesTheSameAndHoldsParametersAlone) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(
        GetParam(),
        [&](World& world) {
          double expected = 0.0;
          std::size_t parameters = 0;
          {
            ToyModel trained{
                world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}, {}};
            expected = trained.forward_backward(0, kRows);
            parameters = trained.model().state_bytes().parameters;
          }
          ToyModel toy{world,
                       {.strategy = strategy,
                        .shard_group = half_of(world.size(), strategy),
                        .purpose = Purpose::inference},
                       {}};
          for (int i = 0; i < 3; ++i) { EXPECT_EQ(evaluate(toy, 0, 1).front(), expected); }
          EXPECT_EQ(toy.model().state_bytes(), (ModelStateBytes{parameters, 0, 0}));
          const CategoryBytes live = world.memory().report().live;
          EXPECT_EQ(live.total(), live[Category::parameters] + live[Category::gather])
              << describe(live);
        },
        {.testing = {.poison = SlotPoison::nan}});
  }
}

TEST(Inference, TrainingCallsAreRefusedAndSayWhatToChoose) {
  run_ranks(2, [](World& world) {
    ToyModel toy{world, {.strategy = Strategy::zero3, .purpose = Purpose::inference}, {}};
    ShardedModel& model = toy.model();
    const auto refused = [&](const auto& call) {
      EXPECT_THAT(refusal<ContractError>(call), HasSubstr("choose Purpose::training"));
    };
    refused([&] { (void)model.forward(toy.root()); });
    refused([&] { (void)model.backward(toy.root()); });
    refused([&] { model.step(); });
    refused([&] { model.optimize_with(SGD{}); });
    refused([&] { model.export_state(StateTensor::gradients, [](const auto&, auto) {}); });
    EXPECT_EQ(exported(model, StateTensor::parameters).size(), 11U);
    EXPECT_GT(evaluate(toy, 0, 1).front(), 0.0);
  });
}

// ------------------------------------------------------------------------------------ contracts

TEST(Evaluation, TrainingCallsAreRefusedWhileItLivesAndWorkAfterIt) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2, [&](World& world) {
      ToyModel toy{
          world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}, {}};
      ShardedModel& model = toy.model();
      model.optimize_with(SGD{});
      (void)toy.forward_backward(0, kRows);
      model.step();
      {
        auto evaluation = model.evaluate();
        (void)toy.forward(0, kRows);
        const auto refused = [&](const auto& call) {
          EXPECT_THAT(refusal<ContractError>(call), HasSubstr("being evaluated"));
        };
        refused([&] { (void)model.backward(toy.root()); });
        refused([&] { model.step(); });
        refused([&] { (void)model.evaluate(); });
        refused([&] { (void)exported(model, StateTensor::parameters); });
        const auto scope = model.forward(toy.blocks().front());
        EXPECT_THAT(refusal<ContractError>([&] { (void)model.forward(toy.blocks().front()); }),
                    HasSubstr("already open"));
        EXPECT_THAT(refusal<ContractError>([&] { evaluation.end_pass(); }), HasSubstr("'block.0'"));
      }
      (void)toy.forward_backward(0, kRows);
      model.step();
      EXPECT_EQ(model.report().step, 2);
    });
  }
}

TEST(Evaluation, WithinAStepItIsRefused) {
  run_ranks(1, [](World& world) {
    ToyModel toy{world, {.accumulate = 2}, {}};
    ShardedModel& model = toy.model();
    model.optimize_with(SGD{});
    (void)toy.forward_backward(0, kRows);
    EXPECT_THAT(refusal<ContractError>([&] { (void)model.evaluate(); }),
                HasSubstr("1 of the step's 2 micro-batches have begun"));
    (void)toy.forward_backward(0, kRows);
    EXPECT_THAT(refusal<ContractError>([&] { (void)model.evaluate(); }), HasSubstr("2 of"));
    model.step();
    EXPECT_GT(evaluate(toy, 0, 1).front(), 0.0);

    ShardedModel bare{world};
    EXPECT_THAT(refusal<ContractError>([&] { (void)bare.evaluate(); }), HasSubstr("materialize"));
  });
}

TEST(Evaluation, TheNextCallReportsAScopeThatOutlivesIt) {
  run_ranks(1, [](World& world) {
    ToyModel toy{world, {}, {}};
    {
      auto evaluation = std::make_unique<Held>(toy.model());
      const auto scope = toy.model().forward(toy.root());
      evaluation.reset();
    }
    EXPECT_THAT(refusal<ContractError>([&] { (void)toy.model().evaluate(); }), HasSubstr("'root'"));
  });
}

// --------------------------------------------------------------------------- gathers and phases

std::vector<std::string> issued(World& world) {
  std::vector<std::string> events;
  for (const trace::Record& record : world.recorder()->records()) {
    if (record.kind != trace::Kind::issue) { continue; }
    EXPECT_EQ(record.phase, "evaluation");
    events.push_back(record.what + " " + record.unit);
  }
  world.recorder()->clear();
  return events;
}

using Events = std::vector<std::string>;

const Events kOneAhead{"gather root",        "gather block.0",     "evaluation root",
                       "gather block.1",     "evaluation block.0", "reshard block.0",
                       "evaluation block.1", "reshard block.1",    "evaluation root"};

TEST(Evaluation, UnitsAreGatheredAheadInTheOrderOfTheTrainingOrOfThePassBefore) {
  for (const bool declared : {false, true}) {
    run_ranks(2,
              [&](World& world) {
                ToyModel toy{world,
                             {.strategy = Strategy::zero3},
                             {.blocks = 2, .tied_head = false, .declared_order = declared}};
                toy.model().optimize_with(SGD{});
                world.recorder()->clear();
                auto evaluation = std::make_unique<Held>(toy.model());
                (void)toy.forward(0, kRows);
                Events first = issued(world);
                if (!declared) {
                  EXPECT_EQ(first.at(1), "evaluation root") << "gathered ahead of an unknown use";
                }
                evaluation->evaluation.end_pass();
                EXPECT_EQ(issued(world), Events{"reshard root"});
                (void)toy.forward(0, kRows);
                EXPECT_EQ(issued(world), kOneAhead);
                evaluation.reset();
                EXPECT_EQ(issued(world), Events{"reshard root"});
                if (declared) { EXPECT_EQ(first, kOneAhead); }
              },
              {.trace = true});
  }
}

TEST(Evaluation, TheOrderMayChangeFromPassToPass) {
  for (const int prefetch : {0, 1, 2}) {
    run_ranks(2,
              [&](World& world) {
                ShardedModel model{world, {.strategy = Strategy::zero3, .prefetch = prefetch}};
                std::vector<Unit> units;
                for (const char* name : {"a", "b", "c"}) {
                  units.push_back(model.add_unit(name, {{"w", {5}}}));
                }
                model.materialize(init::constant(2.0F));
                auto evaluation = model.evaluate();
                for (const std::vector<std::size_t>& order :
                     {std::vector<std::size_t>{0, 1, 2}, {2, 0, 1}, {1}, {0, 0, 1, 2}, {2, 1, 0}}) {
                  for (const std::size_t unit : order) {
                    const auto p = model.forward(units[unit]);
                    EXPECT_EQ(static_cast<const float*>(p["w"])[4], 2.0F);
                  }
                  evaluation.end_pass();
                }
              },
              {.testing = {.poison = SlotPoison::nan}});
  }
}

TEST(Evaluation, DataParallelCopiesTheModelOutOnce) {
  run_ranks(3,
            [&](World& world) {
              ToyModel toy{world, {.strategy = Strategy::dp}, {.blocks = 1, .tied_head = false}};
              world.recorder()->clear();
              {
                auto evaluation = toy.model().evaluate();
                for (int pass = 0; pass < 2; ++pass) {
                  (void)toy.forward(0, kRows);
                  evaluation.end_pass();
                }
              }
              const Events pass{"evaluation root", "evaluation block.0", "evaluation root"};
              Events expected{"broadcast root", "broadcast block.0"};
              for (int i = 0; i < 2; ++i) {
                expected.insert(expected.end(), pass.begin(), pass.end());
              }
              EXPECT_EQ(issued(world), expected);
            },
            {.trace = true});
}

TEST(Evaluation, ItsMemoryIsReportedAsItsOwnPhase) {
  run_ranks(2, [&](World& world) {
    ToyModel toy{world, {.strategy = Strategy::zero3}, {}};
    const auto phase = [&](trace::Phase p) {
      return world.memory().report().by_phase[static_cast<std::size_t>(p)];
    };
    EXPECT_EQ(gather_memory(world).text().find(" eval"), std::string::npos);
    EXPECT_EQ(phase(trace::Phase::evaluation), PhaseMemory{});
    (void)evaluate(toy, 0, 1);
    EXPECT_GT(phase(trace::Phase::evaluation).in_use_bytes,
              phase(trace::Phase::setup).in_use_bytes);
    EXPECT_EQ(world.memory().moment().phase, trace::Phase::setup);
    EXPECT_NE(gather_memory(world).text().find(" eval"), std::string::npos);
  });
}

// A worker's stream needs events; the caller's thread does not.
TEST(Evaluation, OnAStreamOfItsOwnItReadsWhatTheLastStepHasWritten) {
  for (const Strategy strategy : all_strategies()) {
    for (const std::uint64_t seed : {1U, 2U}) {
      run_ranks(
          3,
          [&](World& world) {
            ShardedModel model{
                world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
            std::vector<Unit> units;
            for (const char* name : {"a", "b", "c", "d"}) {
              units.push_back(model.add_unit(name, {{"w", {300}}}));
            }
            model.materialize(init::constant(1.0F));
            model.optimize_with(SGD{.lr = 1.0F, .momentum = 0.0F});
            std::vector<float> seen;
            for (int step = 0; step < 3; ++step) {
              for (const Unit unit : units) { (void)model.forward(unit); }
              for (std::size_t u = units.size(); u-- > 0;) {
                const auto g = model.backward(units[u]);
                float* const gradient = g.grad("w");
                device::enqueue(g.stream(), [=] { gradient[299] += 1.0F; });
              }
              model.step();
              auto evaluation = model.evaluate();
              for (int pass = 0; pass < 2; ++pass) {
                seen.assign(units.size(), 0.0F);
                for (std::size_t u = 0; u < units.size(); ++u) {
                  const auto p = model.forward(units[u]);
                  const float* const w = p["w"];
                  float* const to = &seen[u];
                  device::enqueue(p.stream(), [=] { *to = w[299]; });
                }
                evaluation.end_pass();
                world.compute_stream().wait();
                EXPECT_EQ(seen, std::vector<float>(4, static_cast<float>(-step)))
                    << to_string(strategy);
              }
            }
          },
          {.testing = {
               .poison = SlotPoison::nan,
               .delays = DelayInjection{.seed = seed, .longest = std::chrono::microseconds{200}},
               .compute_stream = ComputeStream::worker}});
    }
  }
}

}  // namespace
}  // namespace tessera::test::evaluation_test
