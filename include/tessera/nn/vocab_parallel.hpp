#pragma once

#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"

namespace tessera::nn {

/// An Embedding by the name that the field gives it where ranks along `tensor` share the
/// vocabulary.
using VocabParallelEmbedding = Embedding;
/// A CrossEntropy by the name that the field gives it where ranks along `tensor` share the
/// vocabulary.
using VocabParallelCrossEntropy = CrossEntropy;

}  // namespace tessera::nn
