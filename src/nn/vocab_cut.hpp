#pragma once

#include <cstdint>
#include <vector>

#include "tessera/shard/tensor_part.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// How ranks along `tensor` divide a vocabulary: a table's tokens and the classes of its logits.
[[nodiscard]] TensorCut vocab_cut(World& world);
/// The part of each of `ranks` ranks along `tensor`.
[[nodiscard]] std::vector<Range> vocab_parts(World& world, std::int64_t vocab, int ranks);

}  // namespace tessera::nn
