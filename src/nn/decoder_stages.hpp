#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/engine/model_options.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tessera/pipeline/schedule.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// Neighbouring layers that a rank computes together: a stage of a pipeline, or all layers.
struct DecoderStage {
  int index = 0;  ///< index among the stages of the pipeline
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embeds = false;    ///< whether it begins with the embedding
  bool predicts = false;  ///< whether it ends with the head and the loss

  friend bool operator==(const DecoderStage&, const DecoderStage&) = default;
};

/// Divides the layers over stages as evenly as possible. Remaining layers go, one each, to the
/// middle stages in order and then to the first: the last has the head, whose products cost as much
/// as vocab / (12 * hidden) layers. Throws ConfigError for more stages than layers.
[[nodiscard]] std::vector<DecoderStage> divide_layers(std::int64_t layers, int stages);

/// What a rank computes of a decoder.
struct DecoderPlace {
  int data_rank = 0;  ///< index among the ranks that compute with other data
  int data_ranks = 1;
  int pipe_index = 0;                          ///< along the mesh's dimension `pipe`
  std::optional<pipeline::Schedule> schedule;  ///< set if `pipe` is above 1
  std::vector<DecoderStage> all_stages;        ///< of the pipeline; one stage without it
  std::vector<DecoderStage> stages;            ///< this rank's
  int slots = 1;         ///< pairs of stage and micro-batch whose activations it keeps at once
  bool divided = false;  ///< whether gradients of weights are a separate pass

  /// The place along `pipe` with stage `stage` of all stages.
  [[nodiscard]] int pipe_of(int stage) const {
    return schedule ? schedule->rank_of_stage[static_cast<std::size_t>(stage)] : 0;
  }
  /// Whether it has the last stage, and so the loss.
  [[nodiscard]] bool predicts() const { return stages.back().predicts; }
  [[nodiscard]] bool embeds() const { return stages.front().embeds; }
};

/// The place of rank `world.rank()`. Throws ConfigError for a schedule that the ranks along `pipe`
/// cannot run, for more stages than layers, and for options that need a decoder in one stage.
[[nodiscard]] DecoderPlace place_of(const DecoderConfig& config, const DecoderOptions& options,
                                    const World& world, const ModelOptions& model);

}  // namespace tessera::nn
