// Snapshots of the training state during steps on a CUDA device, and loads into its memory.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/gate.hpp"
#include "kernels/backend.hpp"
#include "support/groups.hpp"
#include "support/whole_state.hpp"
#include "tessera/world/run.hpp"
#include "world/host_pool.hpp"

namespace tessera::test::cuda_training_state_test {
namespace {

/// Two units whose gradients are a function of the step's number.
class Filled {
 public:
  Filled(World& world, Strategy strategy, Offload offload)
      : world_{world},
        model_{world,
               {.strategy = strategy,
                .shard_group = groups_of_one(strategy),
                .compute = DType::bf16,
                .offload = offload,
                .align_elems = kMomentBlock}} {
    for (const char* const name : {"a", "b"}) {
      units_.push_back(model_.add_unit(
          name, {{"w", {300, 7}}, {"frozen", {99}, /*trainable=*/false}, {"bias", {31}}}));
    }
    model_.materialize(init::normal(3, 0.3F));
    model_.optimize_with(AdamW{.lr = 0.1F}, {.moments = MomentFormat::int8});
  }
  void step() {
    for (const Unit unit : units_) { (void)model_.forward(unit); }
    for (const Unit unit : units_) {
      const auto scope = model_.backward(unit);
      for (const char* const name : {"w", "bias"}) {
        const Tensor gradient = scope.grad(name);
        const auto value = static_cast<unsigned char>(0x3A + model_.steps());
        world_.device().fill(gradient.data(), value,
                             static_cast<std::size_t>(gradient.shape().elems()) * sizeof(float),
                             world_.compute_stream());
      }
    }
    model_.step();
  }
  [[nodiscard]] ShardedModel& model() noexcept { return model_; }

 private:
  World& world_;
  ShardedModel model_;
  std::vector<Unit> units_;
};

enum class Launch : std::uint8_t { plain, graph };

/// Enqueues the next step while the copies of the state are blocked.
void expect_a_snapshot_of_its_step(Strategy strategy, int ranks, Offload offload, Launch launch) {
  WholeState expected;
  WholeState copied;
  WholeState later;
  WholeState loaded;
  WorldOptions on_cuda;
  on_cuda.device = DeviceKind::cuda;
  run_ranks(
      ranks,
      [&](World& world) {
        Filled job{world, strategy, offload};
        job.step();
        job.step();
        save_state(world, job.model(), expected);
        engine::TrainingState state{job.model()};
        copied.declare(state);
        world.barrier();  // freeing memory waits for the device, and so for another rank's gate
        {
          test::Gate gate{world::HostPool{world}.copy_stream(world::CopyKind::snapshots)};
          StateSnapshot snapshot{world, state};
          launch == Launch::graph ? world.run_as_graph([&] { job.step(); }) : job.step();
          gate.open();
          snapshot.wait();
          snapshot.give_to(copied);
        }
        save_state(world, job.model(), later);
        world.barrier();
        load_state(job.model(), expected);
        save_state(world, job.model(), loaded);
      },
      on_cuda);
  EXPECT_EQ(expected.not_partitioned(), "");
  EXPECT_EQ(difference(expected, copied), "");
  EXPECT_NE(difference(expected, later), "");
  EXPECT_EQ(difference(expected, loaded), "");
}

class CudaTrainingState : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
};

TEST_F(CudaTrainingState, IsCopiedAtTheRequestedStepAndLoadsAgain) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    for (const int ranks : {1, 3}) {
      for (const Offload offload : {Offload::none, Offload::optimizer, Offload::state}) {
        SCOPED_TRACE(std::string{to_string(strategy)} + " on " + std::to_string(ranks) +
                     ", offload " + std::string{to_string(offload)});
        expect_a_snapshot_of_its_step(strategy, ranks, offload, Launch::plain);
      }
    }
  }
}

// A graph cannot contain the events of the copies, so it starts after them.
TEST_F(CudaTrainingState, IsCopiedBeforeAGraphOfTheNextStep) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    SCOPED_TRACE(to_string(strategy));
    expect_a_snapshot_of_its_step(strategy, 1, Offload::none, Launch::graph);
  }
}

}  // namespace
}  // namespace tessera::test::cuda_training_state_test
