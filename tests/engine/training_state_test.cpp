// The training state as logical tensors. Each element belongs to one rank, and a model on other
// ranks or with another strategy continues from it bit for bit.
#include "engine/model/training_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "support/whole_state.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::training_state_test {
namespace {

using engine::StateKind;
using engine::StateTensorInfo;
using engine::TrainingState;
using ::testing::HasSubstr;

// ------------------------------------------------------------------------------------------ cases

struct Case {
  const char* name;
  ModelOptions model = {};
  Optimizer optimizer = AdamW{.lr = 0.02F};
  OptimizerOptions options = {};
  std::optional<DType> small = {};  ///< of biases and scales
  bool skips = false;               ///< the second step is skipped
};

CustomOptimizer three_states() {
  return {.name = "three states", .states = 3, .lr = 0.05F, .update = [](const ShardUpdate& piece) {
            if (*piece.apply == 0) { return; }
            for (std::size_t i = 0; i < piece.weights.size(); ++i) {
              for (std::size_t s = 0; s < 3; ++s) {
                float& state = piece.states[s][i];
                state = 0.9F * state + static_cast<float>(s + 1) * piece.gradient_at(i);
                piece.weights[i] -= piece.lr * state / static_cast<float>(*piece.updates);
              }
            }
          }};
}

std::vector<Case> cases() {
  return {
      {"fp32"},
      {"bf16_masters", {.compute = DType::bf16}, AdamW{.lr = 0.02F}, {}, DType::fp32},
      {"bf16_remainders",
       {.compute = DType::bf16, .master_weights = MasterWeights::remainder},
       Lion{.lr = 0.01F},
       {.moments = MomentFormat::bf16, .rounding = Rounding::nearest}},
      {"int8_moments",
       {.compute = DType::bf16, .align_elems = kMomentBlock},
       AdamW{.lr = 0.02F},
       {.moments = MomentFormat::int8}},
      {"fp16_with_a_loss_scale",
       {.compute = DType::fp16,
        .loss_scaling = {.mode = LossScaleMode::dynamic, .initial = 1024, .growth_interval = 2}},
       SGD{.lr = 0.1F, .momentum = 0.9F},
       {},
       {},
       /*skips=*/true},
      {"offloaded", {.compute = DType::bf16, .offload = Offload::optimizer}},
      {"partly_offloaded",
       {.offload = Offload::optimizer, .offload_keep = 0.4F, .align_elems = kMomentBlock},
       AdamW{.lr = 0.02F},
       {.moments = MomentFormat::int8}},
      {"state_offloaded",
       {.compute = DType::bf16,
        .master_weights = MasterWeights::remainder,
        .offload = Offload::state}},
      {"state_partly_offloaded",
       {.offload = Offload::state, .offload_keep = 0.4F, .align_elems = kMomentBlock},
       AdamW{.lr = 0.02F},
       {.moments = MomentFormat::int8}},
      {"custom", {.compute = DType::bf16}, three_states()},
      {"stochastic",
       {.compute = DType::bf16},
       AdamW{.lr = 0.02F},
       {.moments = MomentFormat::bf16, .rounding = Rounding::stochastic}},
  };
}

/// A strategy on a mesh. Ways in groups add gradients in a different order.
struct Way {
  std::string name;
  Strategy strategy;
  std::vector<MeshDim> mesh = {};
  bool in_groups = false;
};

std::vector<Way> ways(int ranks) {
  std::vector<Way> all;
  for (const Strategy strategy : all_strategies()) {
    all.push_back({std::string{to_string(strategy)}, strategy});
  }
  if (ranks < 4) { return all; }
  const std::vector<MeshDim> mesh{{"replicate", 2}, {"shard", ranks / 2}};
  all.push_back({"hybrid in groups", Strategy::hybrid, mesh, true});
  all.push_back({"zero1 in groups", Strategy::zero1, mesh, true});
  return all;
}

/// A model of a case, and its training.
class Job {
 public:
  Job(World& world, const Case& tested, const Way& way, std::uint64_t seed)
      : world_{world}, tested_{tested}, toy_{world, options(tested, way), config(tested, seed)} {
    OptimizerOptions options = tested.options;
    options.clip_norm = 0.5F;
    model().optimize_with(tested.optimizer, options);
  }
  [[nodiscard]] ShardedModel& model() { return toy_.model(); }

  void evaluate() {
    const auto evaluation = model().evaluate();
    (void)toy_.forward(0, 1);
  }
  std::vector<StepReport> train(int steps) {
    std::vector<StepReport> reports;
    for (int i = 0; i < steps; ++i) {
      const auto step = model().steps();
      if (tested_.skips && step == 1 && world_.rank() == 0) {
        toy_.spoil_next(1, std::numeric_limits<float>::infinity());
      }
      const std::int64_t row = (step * world_.size() + world_.rank()) * 2;
      const double loss = toy_.forward_backward(row, 2);
      model().step(&loss);
      reports.push_back(model().report());
    }
    return reports;
  }

 private:
  static ModelOptions options(const Case& tested, const Way& way) {
    ModelOptions options = tested.model;
    options.strategy = way.strategy;
    options.mesh = way.mesh;
    if (way.mesh.empty()) { options.shard_group = groups_of_one(way.strategy); }
    // Blocks stay gathered until the next update.
    if (way.strategy == Strategy::zero3) { options.persist_elems = 63; }
    return options;
  }
  static ToyConfig config(const Case& tested, std::uint64_t seed) {
    return {.batch = 2, .small_dtype = tested.small, .room = 93, .seed = seed};
  }

  World& world_;
  const Case& tested_;
  ToyModel toy_;
};

void expect_same(const std::vector<StepReport>& a, const std::vector<StepReport>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a[i].loss), std::bit_cast<std::uint64_t>(b[i].loss));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(a[i].grad_norm),
              std::bit_cast<std::uint64_t>(b[i].grad_norm));
    EXPECT_EQ(a[i].loss_scale, b[i].loss_scale);
    EXPECT_EQ(a[i].next_loss_scale, b[i].next_loss_scale);
    EXPECT_EQ(a[i].skipped, b[i].skipped);
  }
}

class TrainingStates : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, TrainingStates, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return std::string{tested.param.name}; });

/// A run of five steps, with its states after three and five.
struct Course {
  WholeState third;
  WholeState fifth;
  std::vector<StepReport> reports;  // of the last two steps
};

TEST_P(TrainingStates, ContinueToTheBitWhateverStrategyWroteThem) {
  for (const int ranks : TESSERA_SANITIZED ? std::vector{2, 4} : std::vector{1, 2, 3, 4}) {
    const std::vector<Way> all = ways(ranks);
    for (std::size_t w = 0; w < all.size(); ++w) {
      const Way& writer = all[w];
      const Way& reader = all[(w + 1) % all.size()];
      SCOPED_TRACE(writer.name + " to " + reader.name + " on " + std::to_string(ranks));
      Course course;
      run_ranks(ranks, [&](World& world) {
        Job job{world, GetParam(), writer, 5};
        (void)job.train(3);
        save_state(world, job.model(), course.third);
        const auto reports = job.train(2);
        save_state(world, job.model(), course.fifth);
        if (world.rank() == 0) { course.reports = reports; }
      });
      EXPECT_EQ(course.third.not_partitioned(), "");
      EXPECT_NE(difference(course.third, course.fifth), "");

      WholeState loaded;
      WholeState fifth;
      std::vector<StepReport> reports;
      run_ranks(ranks, [&](World& world) {
        Job job{world, GetParam(), reader, 6};  // starts with other parameters
        (void)job.train(1);
        job.evaluate();
        load_state(job.model(), course.third);
        save_state(world, job.model(), loaded);
        const auto mine = job.train(2);
        save_state(world, job.model(), fifth);
        if (world.rank() == 0) { reports = mine; }
      });
      EXPECT_EQ(difference(course.third, loaded), "");
      if (writer.in_groups != reader.in_groups) { continue; }
      EXPECT_EQ(difference(course.fifth, fifth), "");
      expect_same(course.reports, reports);
    }
  }
}

// A snapshot contains the state of its step even though later steps have begun.
TEST_P(TrainingStates, AreCopiedAsOfTheRequest) {
  const WorldOptions late{
      .testing = {.delays = DelayInjection{.seed = 3, .longest = std::chrono::microseconds{400}}}};
  for (const Way& way : {Way{"ddp", Strategy::ddp}, Way{"zero2", Strategy::zero2}}) {
    SCOPED_TRACE(way.name);
    WholeState expected;
    WholeState copied;
    run_ranks(2, [&](World& world) {
      Job job{world, GetParam(), way, 5};
      (void)job.train(2);
      save_state(world, job.model(), expected);
    });
    run_ranks(
        2,
        [&](World& world) {
          Job job{world, GetParam(), way, 5};
          (void)job.train(2);
          TrainingState state{job.model()};
          copied.declare(state);
          StateSnapshot snapshot{world, state};
          (void)job.train(2);
          snapshot.wait();
          snapshot.give_to(copied);
        },
        late);
    EXPECT_EQ(difference(expected, copied), "");
  }
}

// ---------------------------------------------------------------------------------------- contents

std::map<StateKind, int> kinds_of(ShardedModel& model) {
  std::map<StateKind, int> kinds;
  const TrainingState state{model};
  for (const StateTensorInfo& info : state.tensors()) { ++kinds[info.kind]; }
  return kinds;
}

// 11 parameters: the table, three per block (one frozen) in three blocks, and the head's bias.
TEST(TrainingStateOfAModel, HasTheModelsTensors) {
  using Kinds = std::map<StateKind, int>;
  run_ranks(2, [](World& world) {
    ToyModel inference{
        world,
        {.strategy = Strategy::zero3, .compute = DType::bf16, .purpose = Purpose::inference},
        {}};
    EXPECT_EQ(kinds_of(inference.model()), (Kinds{{StateKind::weight, 11}}));
    ToyModel trained{world, {.strategy = Strategy::dp, .compute = DType::bf16}, {}};
    EXPECT_EQ(kinds_of(trained.model()), (Kinds{{StateKind::weight, 11}, {StateKind::master, 8}}));
    EXPECT_FALSE(TrainingState{trained.model()}.has_optimizer());
    trained.model().optimize_with(AdamW{});
    EXPECT_EQ(kinds_of(trained.model()),
              (Kinds{{StateKind::weight, 11}, {StateKind::master, 8}, {StateKind::moment, 16}}));
  });
}

TEST(TrainingStateOfAModel, ProvidesWeightsForInference) {
  for (const Way& way : ways(4)) {
    WholeState whole;
    std::map<std::string, std::vector<float>> expected;
    std::map<std::string, std::vector<float>> loaded;
    run_ranks(4, [&](World& world) {
      ToyModel trained{world, {.strategy = Strategy::zero3}, {.seed = 5}};
      trained.model().optimize_with(AdamW{});
      save_state(world, trained.model(), whole);
      auto parameters = exported(trained.model(), StateTensor::parameters);
      world.barrier();
      ModelOptions options{
          .strategy = way.strategy, .purpose = Purpose::inference, .mesh = way.mesh};
      if (way.mesh.empty()) { options.shard_group = groups_of_one(way.strategy); }
      ToyModel other{world, options, {.seed = 6}};
      load_state(other.model(), whole);
      auto mine = exported(other.model(), StateTensor::parameters);
      if (world.rank() == 3) {
        expected = std::move(parameters);
        loaded = std::move(mine);
      }
    });
    EXPECT_EQ(loaded, expected) << way.name;
  }
}

TEST(TrainingStateOfAModel, IsRefusedWithinAStepAndBeforeThereIsAny) {
  const auto refusal = [](ShardedModel& model) -> std::string {
    try {
      const TrainingState state{model};
    } catch (const ContractError& error) { return error.what(); }
    return "";
  };
  run_ranks(1, [&](World& world) {
    ShardedModel declared{world};
    EXPECT_THAT(refusal(declared), HasSubstr("call materialize first"));
    ToyModel toy{world, {}, {}};
    toy.model().optimize_with(AdamW{});
    (void)toy.forward_backward(0, 1);
    EXPECT_THAT(refusal(toy.model()), HasSubstr("1 of the step's 1 micro-batches have begun"));
    toy.model().step();
    EXPECT_EQ(refusal(toy.model()), "");
    EXPECT_EQ(toy.model().report().step, 1);
    TrainingState state{toy.model()};
    state.begin_write();
    state.end_write({.steps = 7, .updates = 6});
    EXPECT_EQ(toy.model().steps(), 7);
    EXPECT_THROW((void)toy.model().report(), ContractError) << "step 7 was another run's";
    const auto evaluation = toy.model().evaluate();
    EXPECT_THAT(refusal(toy.model()), HasSubstr("is being evaluated"));
  });
}

// Nothing waits for an event of a destroyed snapshot.
TEST(TrainingStateOfAModel, LeavesNoPendingWorkWhenDestroyed) {
  run_ranks(1, [](World& world) {
    ToyModel toy{world, {}, {}};
    toy.model().optimize_with(AdamW{});
    {
      TrainingState state{toy.model()};
      StateSnapshot snapshot{world, state};
      snapshot.wait();
    }
    const double loss = toy.forward_backward(0, 1);
    toy.model().step(&loss);
    EXPECT_EQ(toy.model().report().step, 1);
  });
}

}  // namespace
}  // namespace tessera::test::training_state_test
