#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/engine/model_options.hpp"
#include "tessera/nn/gpt.hpp"
#include "tessera/nn/gpt_config.hpp"
#include "tessera/pipeline/schedule.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// Neighbouring layers that a rank computes together: a stage of a pipeline, or all of them.
struct GPTStage {
  int index = 0;  ///< among the stages of the pipeline
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embeds = false;    ///< whether it begins with the embedding
  bool predicts = false;  ///< whether it ends with the head and the loss

  friend bool operator==(const GPTStage&, const GPTStage&) = default;
};

/// Divides the layers over stages as evenly as can be. What remains goes, one layer each, to the
/// middle stages in their order and then to the first: the last has the head, whose products are
/// those of vocab / (12 * hidden) layers. Throws ConfigError for more stages than layers.
[[nodiscard]] std::vector<GPTStage> divide_layers(std::int64_t layers, int stages);

/// What a rank computes of a GPT.
struct GPTPlace {
  int data_rank = 0;  ///< among the ranks that compute with other data
  int data_ranks = 1;
  int pipe_index = 0;                          ///< along the mesh's dimension `pipe`
  std::optional<pipeline::Schedule> schedule;  ///< with `pipe` above 1
  std::vector<GPTStage> all_stages;            ///< of the pipeline; one without
  std::vector<GPTStage> stages;                ///< this rank's
  int slots = 1;         ///< stages and micro-batches that it keeps activations of at once
  bool divided = false;  ///< whether it makes gradients of weights by themselves

  /// The place along `pipe` that has a stage of all.
  [[nodiscard]] int pipe_of(int stage) const {
    return schedule ? schedule->rank_of_stage[static_cast<std::size_t>(stage)] : 0;
  }
  /// Whether it has the last stage, and so the loss.
  [[nodiscard]] bool predicts() const { return stages.back().predicts; }
  [[nodiscard]] bool embeds() const { return stages.front().embeds; }
};

/// The place of rank `world.rank()`. Throws ConfigError for a schedule that the ranks along `pipe`
/// cannot run, for more stages than layers, and for options that need a GPT in one stage.
[[nodiscard]] GPTPlace place_of(const GPTConfig& config, const GPTOptions& options,
                                const World& world, const ModelOptions& model);

}  // namespace tessera::nn
