#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The DecoderOptions for `settings`.
[[nodiscard]] nn::DecoderOptions gpt_options(const Settings& settings);

/// One rank's GPT for evaluation only.
[[nodiscard]] Sharded<nn::Decoder> sampling_gpt(World& world, const Settings& settings,
                                                const nn::DecoderConfig& config, Strategy strategy);

/// One rank's GPT as a run sets it up. All memory that the library holds for a run is allocated
/// here, so running this on the meta device plans the run (planner.hpp).
class RankGpt {
 public:
  RankGpt(World& world, const Settings& settings, const nn::DecoderConfig& config,
          Strategy strategy);

  /// Allocates the model state, and sets it from `initial`.
  void materialize(const Initializer& initial);
  /// Allocates the optimizer's state, if the run makes steps or checkpoints.
  void optimize();
  /// Loads the whole state from a checkpoint, after `optimize`.
  void load_from(const std::filesystem::path& checkpoint);
  /// Reserves activations and workspace, if the run makes steps.
  void reserve();
  /// Creates the run's Checkpointer, after `optimize`; null if the run saves no checkpoints.
  [[nodiscard]] std::unique_ptr<Checkpointer> checkpointer();
  /// Runs the `accumulate` micro-batches of a step, which `data` returns in order
  /// (nn::Decoder::run).
  void run(const std::function<nn::MicroBatch(int micro_batch)>& data) { gpt_.run(data); }
  void update(float lr);
  /// Computes this rank's mean loss, between steps.
  [[nodiscard]] double evaluate(const nn::MicroBatch& batch);

  [[nodiscard]] Initializer initializer() { return gpt_.module().initializer(settings_.seed); }
  [[nodiscard]] StepReport report() const { return gpt_.report(); }
  [[nodiscard]] StepReport previous_report() const { return gpt_.previous_report(); }
  [[nodiscard]] ShardedModel& model() noexcept { return gpt_.model(); }

 private:
  const Settings& settings_;
  Sharded<nn::Decoder> gpt_;
};

}  // namespace tessera::tools
