#pragma once

#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"

namespace tessera::nn {

/// The layers that share a vocabulary among ranks along `tensor`, by the names that the field gives
/// them. On one rank they are the same layers.
using VocabParallelEmbedding = Embedding;
using VocabParallelCrossEntropy = CrossEntropy;

}  // namespace tessera::nn
