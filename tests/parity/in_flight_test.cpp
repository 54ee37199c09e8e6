// Several micro-batches in flight give the same bits as one after the other, under every strategy,
// in every precision and accumulation mode, with and without offload; memory is as planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/groups.hpp"
#include "support/planned_jobs.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::in_flight_test {
namespace {

using ::testing::HasSubstr;

// Alternating forward and backward passes, as a pipeline's first and middle stages run them; and
// all forwards first.
const std::vector<std::string> kSchedules{"FBFBFB", "FFBFBB", "FFFBBB"};

ToyRun three_micro_batches(int ranks, Strategy strategy) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = 3;
  run.options.strategy = strategy;
  run.options.shard_group = half_of(ranks, strategy);
  run.options.accumulate = 3;
  run.options.checks = Checks::strict;
  return run;
}

void expect_same(ToyRun run, const std::string& what) {
  const ToyOutcome expected = run_toy(run);
  for (const std::string& schedule : kSchedules) {
    run.schedule = schedule;
    EXPECT_EQ(difference(expected, run_toy(run)), "")
        << to_string(run.options.strategy) << " on " << run.ranks << ", " << what << ", "
        << schedule;
  }
}

class InFlight : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, InFlight, ::testing::ValuesIn(tried_strategies()),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(InFlight, ChangesNoBitInAnyPrecisionAndAccumulationMode) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const Offload offload : {Offload::none, Offload::optimizer, Offload::state}) {
        ToyRun run = three_micro_batches(2, GetParam());
        run.options.accumulate_mode = mode;
        run.options.compute = compute;
        run.options.gradient = compute == DType::bf16 ? DType::bf16 : DType::fp32;
        run.options.offload = offload;
        expect_same(run, std::string{to_string(mode)} + " " + std::string{to_string(compute)} +
                             " offload " + std::string{to_string(offload)});
      }
    }
  }
}

TEST_P(InFlight, ChangesNoBitOverRanksLayoutsAndDelays) {
  std::uint64_t seed = 0;
  for (const int ranks : {1, 3, 4}) {
    for (const bool tied_head : {false, true}) {
      ToyRun run = three_micro_batches(ranks, GetParam());
      run.toy.tied_head = tied_head;
      run.toy.declared_order = ranks == 3;
      run.options.checks = ranks == 4 ? Checks::memory : Checks::strict;
      run.options.prefetch = ranks - 1;
      run.world.testing.poison = SlotPoison::nan;
      run.world.testing.delays = DelayInjection{++seed, std::chrono::microseconds{50}};
      expect_same(run, tied_head ? "tied head" : "root opened twice");
    }
  }
}

TEST(InFlightUnits, StayGatheredUntilTheirLastUse) {
  for (const Strategy strategy : {Strategy::zero3, Strategy::hybrid}) {
    ToyRun staying = three_micro_batches(2, strategy);
    staying.options.reshard = Reshard::after_backward;
    expect_same(staying, "after backward");
    staying.options.reshard = Reshard::after_forward;
    staying.options.persist_elems = 60;
    expect_same(staying, "persisting");
  }
}

/// Two steps of three micro-batches with at most two in flight, each with its own activations.
void train_in_flight(World& world, const ModelOptions& options) {
  ShardedModel model{world, options};
  std::vector<Unit> units{model.add_unit("table", {{"w", {301}}}, {.kind = UnitKind::root})};
  for (const char* const name : {"a", "b", "c"}) {
    units.push_back(model.add_unit(name, {{"w", {70, 3}}}));
  }
  model.materialize(init::constant(1.0F));
  model.optimize_with(AdamW{});
  std::map<int, Buffer> activations;
  const auto forward = [&](int micro) {
    activations.emplace(micro, world.allocate(Category::activations, 1000, "of a micro-batch"));
    for (const Unit unit : units) { (void)model.forward(unit, micro); }
  };
  const auto backward = [&](int micro) {
    for (std::size_t u = units.size(); u-- > 0;) { (void)model.backward(units[u], micro); }
    activations.erase(micro);
  };
  for (int step = 0; step < 2; ++step) {
    forward(0);
    forward(1);
    backward(0);
    forward(2);
    backward(1);
    backward(2);
    model.step();
  }
}

TEST_P(InFlight, HoldsWhatWasPlanned) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const Reshard reshard : {Reshard::after_forward, Reshard::after_backward}) {
      if (reshard != Reshard::after_forward &&
          traits_of(GetParam()).parameters != Holding::sharded) {
        continue;
      }
      ModelOptions options;
      options.strategy = GetParam();
      options.shard_group = half_of(4, GetParam());
      options.reshard = reshard;
      options.accumulate = 3;
      options.accumulate_mode = mode;
      const auto body = [&](World& world) { train_in_flight(world, options); };
      for (int rank = 0; rank < 4; ++rank) {
        MemoryReport planned;
        MemoryReport measured;
        simulate_rank({.rank = rank, .ranks = 4}, [&](World& world) {
          body(world);
          planned = world.memory().report();
        });
        run_ranks(4, [&](World& world) {
          body(world);
          if (world.rank() == rank) { measured = world.memory().report(); }
        });
        EXPECT_EQ(difference(planned, measured), "") << text_of(options) << " rank " << rank;
      }
    }
  }
}

const ModelOptions kStrict{.strategy = Strategy::zero3, .accumulate = 3, .checks = Checks::strict};

/// The error of a program of forward and backward scopes; empty if there is none.
std::string refusal(const std::function<void(ShardedModel&, Unit, Unit)>& program,
                    const ModelOptions& options = kStrict) {
  try {
    run_ranks(1, [&](World& world) {
      ShardedModel model{world, options};
      const Unit a = model.add_unit("a", {{"w", {9}}});
      const Unit b = model.add_unit("b", {{"w", {9}}});
      model.materialize(init::constant(1.0F));
      program(model, a, b);
    });
  } catch (const ContractError& error) { return error.what(); }
  return {};
}

TEST(InFlightRefusals, RefusesAMicroBatchThatOvertakesAnotherInAUnit) {
  for (const Strategy strategy : tried_strategies()) {
    EXPECT_THAT(
        refusal(
            [](ShardedModel& model, Unit a, Unit u) {
              (void)model.forward(a, 0);
              (void)model.forward(a, 1);
              (void)model.forward(u, 1);
              (void)model.backward(u, 1);
              (void)model.forward(u, 0);
            },
            {.strategy = strategy, .accumulate = 2, .bucket_bytes = 1}),
        HasSubstr(
            "forward of unit 'b' in micro-batch 0: micro-batch 1 already has gradients of it"))
        << to_string(strategy);
  }
}

// Reads parameters between the scopes that count: of a block that has been released, while the head
// is in its backward pass and gradients of an earlier micro-batch are still due.
TEST(InFlightUnits, ReadsDoNotCountAsUses) {
  for (const Strategy strategy : all_strategies()) {
    run_ranks(2, [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy,
                          .shard_group = groups_of_one(strategy),
                          .accumulate = 2,
                          .checks = Checks::strict}};
      const Unit block = model.add_unit("block", {{"w", {9}}});
      const Unit head = model.add_unit("head", {{"w", {9}}});
      model.materialize(init::constant(2.0F));
      model.optimize_with(SGD{.lr = 1.0F});
      for (int step = 0; step < 2; ++step) {
        for (int micro = 0; micro < 2; ++micro) {
          (void)model.forward(block, micro);
          (void)model.forward(head, micro);
          (void)model.backward(head, micro).grad("w");
          const ReadScope scope = model.read(block, micro);
          EXPECT_EQ(static_cast<const float*>(scope["w"])[8], step == 0 ? 2.0F : 1.0F);
        }
        for (int micro = 0; micro < 2; ++micro) {
          const BackwardScope scope = model.backward(block, micro);
          float* const gradient = scope.grad("w");
          for (int i = 0; i < 9; ++i) { gradient[i] += 1.0F; }
        }
        model.step();
      }
    });
  }
}

TEST(InFlightRefusals, AReadInAMicroBatchThatIsNotInFlight) {
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit) {
                (void)model.forward(a, 0);
                (void)model.read(a, 1);
              }),
              HasSubstr("read of unit 'a' in micro-batch 1, which is not in flight; open its "
                        "forward scope first"));
}

TEST(InFlightRefusals, BeginNoMicroBatch) {
  EXPECT_EQ(refusal([](ShardedModel& model, Unit a, Unit) {
              ForwardScope open = model.forward(a, 0);
              EXPECT_THROW((void)model.forward(a, 1), ContractError);
              open.close();
              (void)model.backward(a, 0);
              (void)model.forward(a);  // micro-batch 1, the only one in flight
              (void)model.backward(a);
            }),
            "");
}

// A trainer need not run the backward pass of frozen units, nor, with checks off, of every unit
// that it ran forward.
TEST(InFlightUnits, WithoutABackwardPassBlockNothing) {
  for (const bool numbered : {true, false}) {
    for (const Checks checks : {Checks::strict, Checks::off}) {
      run_ranks(1, [&](World& world) {
        ShardedModel model{world, {.strategy = Strategy::zero3, .accumulate = 2, .checks = checks}};
        const Unit table = model.add_unit("table", {{"w", {8}, /*trainable=*/false}});
        const Unit block = model.add_unit("block", {{"w", {8}}});
        const Unit head = model.add_unit(
            "head", {{"n", {8}}, {.name = "w", .shape = {8}, .tied_to = TiedTo{"table", "w"}}});
        model.materialize(init::constant(1.0F));
        model.optimize_with(SGD{});
        for (int micro = 0; micro < 2; ++micro) {
          for (const Unit unit : {table, block, head}) {
            (void)(numbered ? model.forward(unit, micro) : model.forward(unit));
          }
          for (const Unit unit : {head, block}) {
            if (checks == Checks::off && micro == 0 && unit == block) { continue; }
            (void)(numbered ? model.backward(unit, micro) : model.backward(unit));
          }
        }
        EXPECT_NO_THROW(model.step());
      });
    }
  }
}

TEST(InFlightUnits, AreGatheredOnceByTheEvaluationThatFollows) {
  run_ranks(2,
            [](World& world) {
              ShardedModel model{world, {.strategy = Strategy::zero3, .accumulate = 2}};
              std::vector<Unit> units;
              for (const char* const name : {"a", "b", "c"}) {
                units.push_back(model.add_unit(name, {{"w", {9}}}));
              }
              model.materialize(init::constant(1.0F));
              model.optimize_with(SGD{});
              for (const int micro : {0, 1}) {
                for (const Unit unit : units) { (void)model.forward(unit, micro); }
              }
              for (const int micro : {0, 1}) {
                for (std::size_t u = units.size(); u-- > 0;) {
                  (void)model.backward(units[u], micro);
                }
              }
              model.step();
              world.recorder()->clear();
              {
                const auto evaluation = model.evaluate();
                EXPECT_THROW((void)model.forward(units[0], 1), ContractError);
                for (const Unit unit : units) { (void)model.forward(unit); }
              }
              const auto records = world.recorder()->records();
              EXPECT_EQ(std::ranges::count_if(records,
                                              [](const trace::Record& record) {
                                                return record.kind == trace::Kind::issue &&
                                                       record.what == "gather";
                                              }),
                        3);
            },
            {.trace = true});
}

TEST(InFlightRefusals, NameMicroBatchAndUnit) {
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit) { (void)model.forward(a, 1); }),
              HasSubstr("micro-batches begin in order, and the next is 0"));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit) { (void)model.forward(a, -1); }),
              HasSubstr("forward of micro-batch -1"));
  EXPECT_THAT(
      refusal([](ShardedModel& model, Unit a, Unit) {
        (void)model.forward(a, 0);
        (void)model.forward(a, 1);
        (void)model.forward(a);
      }),
      HasSubstr("2 micro-batches are in flight, 0 to 1 of the step: name the scope's micro-batch"));
  EXPECT_THAT(
      refusal([](ShardedModel& model, Unit a, Unit b) {
        (void)model.forward(a, 0);
        (void)model.forward(b, 0);
        (void)model.forward(a, 1);
        (void)model.backward(b, 0);
        (void)model.backward(a, 1);
      }),
      HasSubstr("backward of unit 'a' in micro-batch 1: that of micro-batch 0 comes first"));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit) {
                (void)model.forward(a, 0);
                (void)model.forward(a, 1);
                const BackwardScope open = model.backward(a, 0);
                (void)model.backward(a, 1);
              }),
              HasSubstr("that of micro-batch 0 comes first and has not ended"));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit b) {
                (void)model.forward(a, 0);
                (void)model.backward(a, 0);
                (void)model.forward(b, 0);
              }),
              HasSubstr("forward of micro-batch 0: its backward pass has begun"));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit) {
                for (int micro = 0; micro < 4; ++micro) { (void)model.forward(a, micro); }
              }),
              HasSubstr("a forward pass begins after 3 micro-batches of this step"));
  EXPECT_THAT(refusal([](ShardedModel& model, Unit a, Unit) {
                (void)model.forward(a, 0);
                (void)model.backward(a, 0);
                (void)model.forward(a, 1);
                (void)model.forward(a, 0);
              }),
              HasSubstr("forward of micro-batch 0: it has ended"));
}

}  // namespace
}  // namespace tessera::test::in_flight_test
