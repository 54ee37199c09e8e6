// Checkpoints of ranks of any kind: processes joined by MPI or NCCL, and threads on CUDA devices.
#include <gtest/gtest.h>

#include <optional>

#include "checkpoint/mesh_job.hpp"
#include "support/groups.hpp"
#include "support/rank_job.hpp"
#include "support/rounding.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"

namespace tessera::test::anywhere_test {
namespace {

constexpr nn::DecoderConfig kConfig{.layers = 2, .hidden = 24, .heads = 3, .vocab = 37, .seq = 11};

/// A model in training.
class Trainer {
 public:
  Trainer(World& world, const ModelOptions& options)
      : world_{world}, gpt_{shard(nn::Decoder{kConfig}, world, options)} {
    gpt_.materialize(/*seed=*/3);
    gpt_.optimize_with(AdamW{.lr = 0.01F}, {.clip_norm = 1.0F});
  }
  [[nodiscard]] ShardedModel& model() { return gpt_.model(); }
  void step() {
    const std::vector<std::int32_t> now = tokens(0);
    const std::vector<std::int32_t> next = tokens(1);
    gpt_.forward_backward(now, next);
    gpt_.step();
    (void)gpt_.report();  // waits until the tokens are read
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> tokens(std::int64_t shift) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < 2 * kConfig.seq; ++i) {
      const std::int64_t at = i + shift + std::int64_t{17} * world_.rank() + 5 * model().steps();
      tokens.push_back(static_cast<std::int32_t>((at * 7 + at / 3) % kConfig.vocab));
    }
    return tokens;
  }

  World& world_;
  decltype(shard(nn::Decoder{kConfig}, std::declval<World&>(), ModelOptions{})) gpt_;
};

std::vector<ModelOptions> tried(int ranks) {
  std::vector<ModelOptions> all;
  for (const Strategy strategy : all_strategies()) {
    const bool bf16 = strategy == Strategy::zero3;
    all.push_back({.strategy = strategy,
                   .shard_group = strategy != Strategy::hybrid ? 0
                                  : ranks % 2 == 0             ? ranks / 2
                                                               : ranks,
                   .compute = bf16 ? DType::bf16 : DType::fp32,
                   .master_weights = bf16 ? MasterWeights::remainder : MasterWeights::fp32,
                   .offload = strategy == Strategy::zero2   ? Offload::optimizer
                              : strategy == Strategy::zero3 ? Offload::state
                                                            : Offload::none});
  }
  return all;
}

/// A folder shared by all ranks; it is removed when rank 0 ends.
class SharedFolder {
 public:
  explicit SharedFolder(World& world) : world_{world} {
    if (world.rank() == 0) { made_.emplace(); }
    path_ = world.exchange(made_ ? made_->path().string() : std::string{}).front();
  }
  ~SharedFolder() {
    if (std::uncaught_exceptions() == 0) { world_.barrier(); }
  }
  [[nodiscard]] std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  World& world_;
  std::optional<TemporaryFolder> made_;
  std::filesystem::path path_;
};

TEST(CheckpointAnywhere, AResumedJobHasTheBitsOfTheUninterruptedOne) {
  const int ranks = rank_counts({4}).front();
  comm_kinds().front().run(
      ranks,
      [&](World& world) {
        for (const ModelOptions& options : tried(world.size())) {
          SCOPED_TRACE(to_string(options.strategy));
          const SharedFolder folder{world};
          Trainer whole{world, options};
          Checkpointer checkpointer{whole.model(), {.folder = folder / "async"}};
          whole.step();
          whole.step();
          const auto at_once = save(whole.model(), folder / "sync");
          checkpointer.save({});
          whole.step();
          checkpointer.after_step({});
          whole.step();
          checkpointer.finish();
          const auto expected = save(whole.model(), folder / "expected");

          Trainer resumed{world, options};
          EXPECT_EQ(load(resumed.model(), checkpointer.newest()).step, 2);
          resumed.step();
          resumed.step();
          const auto outcome = save(resumed.model(), folder / "resumed");
          if (world.rank() != 0) { continue; }
          EXPECT_EQ(difference(at_once, checkpointer.newest()), "");
          EXPECT_EQ(difference(expected, outcome), "");
        }
      },
      {.testing = {.delays =
                       DelayInjection{.seed = 3, .longest = std::chrono::microseconds{200}}}});
}

TEST(CheckpointAnywhere, AMeshResumesFromAnother) {
  const int ranks = rank_counts({4}).front();
  const std::vector<MeshDim> first{{"pipe", ranks / 2}, {"tensor", 2}};
  const std::vector<MeshDim> second{{"tensor", ranks / 2}, {"pipe", 2}};
  MeshJob job;
  job.options.compute = DType::bf16;
  comm_kinds().front().run(ranks,
                           [&](World& world) {
                             const SharedFolder folder{world};
                             MeshTrainer trainer{world, job.on(first)};
                             trainer.steps(2);
                             const auto saved = save(trainer.model(), folder / "saved");
                             MeshTrainer other{world, job.on(second)};
                             EXPECT_EQ(load(other.model(), saved).step, 2);
                             const auto again = save(other.model(), folder / "again");
                             if (world.rank() == 0) { EXPECT_EQ(difference(saved, again), ""); }
                             trainer.steps(2);
                             other.steps(2);
                             const double loss = trainer.loss();
                             // A weight whose master lies at a boundary may be rounded the
                             // other way, by 2 u; an eighth of them are allowed to be.
                             const double near = 2 * unit_roundoff(DType::bf16) / 8;
                             EXPECT_NEAR(other.loss(), loss, near * loss);
                           },
                           {});
}

// If a rank cannot write, all ranks report that rank, and none waits for it.
TEST(CheckpointAnywhere, AFailureIsThrownOnEveryRank) {
  comm_kinds().front().run(rank_counts({3}).front(),
                           [](World& world) {
                             const SharedFolder folder{world};
                             Trainer trainer{world, {.strategy = Strategy::zero3}};
                             trainer.step();
                             EXPECT_THROW((void)load(trainer.model(), folder / "none"),
                                          FormatError);
                             EXPECT_THROW((void)save(trainer.model(), "/proc/none"), Error);
                             trainer.step();
                             const auto saved = save(trainer.model(), folder / "run");
                             EXPECT_EQ(load(trainer.model(), saved).step, 2);
                           },
                           {});
}

}  // namespace
}  // namespace tessera::test::anywhere_test
