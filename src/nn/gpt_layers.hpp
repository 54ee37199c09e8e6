#pragma once

#include <utility>

#include "tessera/engine/model_options.hpp"
#include "tessera/nn/block.hpp"
#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"
#include "tessera/nn/gpt.hpp"
#include "tessera/nn/layer_norm.hpp"
#include "tessera/nn/tensor_ranks.hpp"

namespace tessera::nn {

[[nodiscard]] inline TensorOptions tensor_options(const GPTOptions& options) {
  return {.sequence_parallel = options.sequence_parallel, .slices = options.tensor_slices};
}

/// The layers of a GPT, with the parts that a rank along `tensor` has.
struct GPTLayers {
  /// `ranks_` belong to this model.
  GPTLayers(World& world, const GPTConfig& config, const GPTOptions& options,
            const ModelOptions& model, TensorRanks ranks_)
      : ranks{std::move(ranks_)},
        embedding{
            world, {config.vocab, config.seq, config.hidden, config.logits_row_elems()}, ranks},
        block{world, config.hidden, config.heads, options.norms, ranks},
        ln_f{"ln_f", config.hidden, options.norms, ranks.row_gradient()},
        loss{world, config.vocab, model.accumulate, embedding.logits_row_elems(), ranks} {}

  TensorRanks ranks;
  Embedding embedding;
  Block block;  // one for all layers: its parameters are those of the scope
  LayerNorm ln_f;
  CrossEntropy loss;
};

}  // namespace tessera::nn
