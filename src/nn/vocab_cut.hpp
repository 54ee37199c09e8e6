#pragma once

#include "tessera/shard/tensor_part.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {

/// How ranks along `tensor` share a vocabulary: a table's tokens and the classes of its logits.
[[nodiscard]] TensorCut vocab_cut(World& world);

}  // namespace tessera::nn
