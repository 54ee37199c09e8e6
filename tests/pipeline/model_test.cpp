// A ShardedModel with units at places along `pipe`, driven by a Pipeline, has the bits of an
// undivided model with accumulation, under every strategy and schedule.
#include <gtest/gtest.h>

#include "support/stack.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/pipeline/pipeline.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::pipeline::model_test {
namespace {

using test::StackOutcome;

constexpr int kSteps = 3;

/// One unit per stage, at its rank's place.
class ModelWeights final : public test::StackWeights {
 public:
  ModelWeights(World& world, const ModelOptions& options, const Schedule& schedule)
      : world_{world}, model_{world, options}, rank_of_stage_{schedule.rank_of_stage} {
    const bool whole = MeshShape{options.mesh}.size("pipe") == 1;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      units_.push_back(model_.add_unit("stage " + std::to_string(stage), {{"w", {kWidth, kWidth}}},
                                       {.pipe = whole ? 0 : rank_of_stage_[index(stage)]}));
    }
    model_.materialize(init::normal(/*seed=*/3, /*stddev=*/0.5F));
    model_.optimize_with(AdamW{.lr = 0.01F}, {.clip_norm = 0.0F});
  }

  void with(const Turn& turn, const Use& use) override {
    const auto [work, stage, micro_batch] = turn.action;
    if (work == Work::forward) {
      const ForwardScope p = model_.forward(units_[index(stage)], micro_batch);
      return use(p["w"], {});
    }
    const BackwardScope g = model_.backward(units_[index(stage)], micro_batch);
    use(g["w"], g.grad("w"));
  }
  void step() { model_.step(); }
  /// Writes data rank `data`'s weights of the stages on `rank` along pipe, or of all stages if it
  /// is -1.
  void write(StackOutcome& outcome, int rank, int data) {
    const Evaluation evaluation = model_.evaluate();
    for (std::size_t stage = 0; stage < units_.size(); ++stage) {
      if (rank >= 0 && rank_of_stage_[stage] != rank) { continue; }
      const ForwardScope p = model_.forward(units_[stage]);
      world_.compute([&] {
        const std::string name =
            "weight " + std::to_string(stage) + " of data rank " + std::to_string(data);
        world_.device().copy_out(outcome.add(name, kWidth * kWidth), p["w"].data(),
                                 sizeof(float) * kWidth * kWidth, world_.compute_stream());
        world_.compute_stream().wait();
      });
    }
  }

 private:
  static std::size_t index(int stage) { return static_cast<std::size_t>(stage); }

  World& world_;
  ShardedModel model_;
  std::vector<int> rank_of_stage_;
  std::vector<Unit> units_;
};

ModelOptions options_of(Strategy strategy, int pipe, int data_ranks, int micro_batches) {
  const char* const data = strategy == Strategy::ddp ? "replicate" : "shard";
  ModelOptions options;
  options.strategy = strategy;
  options.accumulate = micro_batches;
  options.accumulate_mode = AccumulateMode::deferred;
  options.mesh = {{"pipe", pipe}, {data, data_ranks}};
  return options;
}

void train_in_stages(World& world, const ModelOptions& options, const Schedule& schedule,
                     StackOutcome& outcome) {
  const Mesh mesh{world, options.mesh};
  ModelWeights weights{world, options, schedule};
  Pipeline pipeline{mesh, schedule, test::Stack::kBoundary};
  test::Stack stack{world, schedule, weights, pipeline.most_in_flight(),
                    mesh.along("replicate", "shard").index()};
  const Passes passes = stack.passes(outcome);
  for (int step = 0; step < kSteps; ++step) {
    pipeline.run(passes);
    weights.step();
  }
  weights.write(outcome, mesh.index("pipe"), mesh.along("replicate", "shard").index());
}

void train_whole(World& world, const ModelOptions& options, const Schedule& schedule,
                 StackOutcome& outcome) {
  ModelWeights weights{world, options, schedule};
  test::StackAlone alone{world, schedule, weights, world.rank()};
  for (int step = 0; step < kSteps; ++step) {
    alone.run(outcome);
    weights.step();
  }
  weights.write(outcome, -1, world.rank());
}

std::vector<Schedule> schedules(int ranks) {
  return {gpipe(ranks, 2 * ranks), one_forward_one_backward(ranks, 2 * ranks + 1),
          interleaved(ranks, 2, 2 * ranks)};
}

class PipelineModel : public testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, PipelineModel,
                         testing::Values(Strategy::ddp, Strategy::zero1, Strategy::zero2,
                                         Strategy::zero3),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(PipelineModel, InStagesHasTheBitsOfAWholeOneThatAccumulates) {
  for (const auto& [pipe, data_ranks] : {std::pair{2, 1}, std::pair{3, 1}, std::pair{2, 2}}) {
    for (const Schedule& schedule : schedules(pipe)) {
      StackOutcome whole;
      StackOutcome stages;
      WorldOptions hard;
      hard.testing.poison = SlotPoison::nan;
      hard.testing.delays = DelayInjection{.seed = 2, .longest = std::chrono::microseconds{100}};
      const ModelOptions one = options_of(GetParam(), 1, data_ranks, schedule.micro_batches);
      const ModelOptions many = options_of(GetParam(), pipe, data_ranks, schedule.micro_batches);
      run_ranks(data_ranks, [&](World& world) { train_whole(world, one, schedule, whole); });
      run_ranks(
          pipe * data_ranks, [&](World& world) { train_in_stages(world, many, schedule, stages); },
          hard);
      EXPECT_EQ(stages.all(), whole.all())
          << schedule.name << " on " << MeshShape{many.mesh}.to_string();
    }
  }
}

TEST_P(PipelineModel, HoldsWhatWasPlannedOnEveryRank) {
  const Schedule schedule = interleaved(2, 3, 4);
  const ModelOptions options = options_of(GetParam(), 2, 2, schedule.micro_batches);
  StackOutcome outcome;
  std::vector<CategoryBytes> planned(4);
  for (int rank = 0; rank < 4; ++rank) {
    simulate_rank({.rank = rank, .ranks = 4}, [&](World& world) {
      train_in_stages(world, options, schedule, outcome);
      planned[static_cast<std::size_t>(rank)] = world.memory().report().at_peak;
    });
  }
  run_ranks(4, [&](World& world) {
    train_in_stages(world, options, schedule, outcome);
    EXPECT_EQ(world.memory().report().at_peak, planned[static_cast<std::size_t>(world.rank())])
        << "rank " << world.rank();
  });
}

}  // namespace
}  // namespace tessera::pipeline::model_test
