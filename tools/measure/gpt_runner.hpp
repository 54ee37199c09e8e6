#pragma once

#include <memory>
#include <vector>

#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"
#include "tools/measure/step.hpp"

namespace tessera::bench {

struct RunnerOptions {
  ModelOptions model;
  nn::DecoderOptions gpt;
  OptimizerOptions optimizer;
};
/// The options of a plain step of `strategy`.
[[nodiscard]] RunnerOptions runner_options(const StepOptions& options, Strategy strategy);

/// One rank's GPT, with random tokens of that rank.
class GptRunner {
 public:
  GptRunner(World& world, const StepOptions& options, const RunnerOptions& run);
  GptRunner(World& world, const StepOptions& options, Strategy strategy)
      : GptRunner{world, options, runner_options(options, strategy)} {}

  void step();
  /// The seconds of a step, from the moment all ranks have met to the moment the last has finished.
  [[nodiscard]] double timed_step();
  /// The mean loss over the ranks of the last step, before its update.
  [[nodiscard]] double loss() { return model().report().loss; }
  [[nodiscard]] ShardedModel& model() noexcept { return gpt_.model(); }

 private:
  World& world_;
  Sharded<nn::Decoder> gpt_;
  std::vector<std::int32_t> inputs_, targets_;
};

/// Rounds that are not timed: the first step gathers without prefetch.
inline constexpr int kUntimedRounds = 2;

/// One runner per strategy of `options`.
[[nodiscard]] std::vector<std::unique_ptr<GptRunner>> make_runners(World& world,
                                                                   const StepOptions& options);

/// The model's matrix products of one step without attention's: those with weights, once forward
/// and twice backward.
class ModelProducts {
 public:
  ModelProducts(World& world, const StepOptions& options);
  ~ModelProducts();

  [[nodiscard]] double flops() const;
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::bench
