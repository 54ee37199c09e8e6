#pragma once

#include <utility>

#include "nn/layer.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/nn/block.hpp"
#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/nn/norm.hpp"
#include "tessera/nn/tensor_ranks.hpp"

namespace tessera::nn {

[[nodiscard]] inline TensorOptions tensor_options(const DecoderOptions& options) {
  return {.sequence_parallel = options.sequence_parallel, .slices = options.tensor_slices};
}

/// The layers of a decoder, with the parts that a rank along `tensor` has.
struct DecoderLayers {
  /// `ranks_` belong to this model.
  DecoderLayers(World& world, const DecoderConfig& config, const DecoderOptions& options,
                const ModelOptions& model, TensorRanks ranks_)
      : ranks{std::move(ranks_)},
        embedding{world,
                  {.vocab = config.vocab,
                   .positions = config.positions == PositionKind::learned ? config.seq : 0,
                   .hidden = config.hidden,
                   .logits_row_elems = config.logits_row_elems(),
                   .tied_head = config.tied_head},
                  ranks},
        block{world, config, options.norms, ranks},
        ln_f{"ln_f", config.hidden, norm_options(config, options.norms, ranks)},
        loss{world, config.vocab, model.accumulate, embedding.logits_row_elems(), ranks} {}

  TensorRanks ranks;
  Embedding embedding;
  Block block;  // one for all layers: its parameters are those of the scope
  Norm ln_f;
  CrossEntropy loss;
};

}  // namespace tessera::nn
