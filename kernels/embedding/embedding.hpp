#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y[b, t, :] = token_table[tokens[b, t], :] + position_table[t, :]. Both tables are of one
/// dtype.
struct EmbeddingForward {
  const std::int32_t* tokens;  ///< [batch, seq], each in [0, vocab)
  ConstValues token_table;     ///< [vocab, hidden]
  ConstValues position_table;  ///< [at least seq, hidden]
  Values y;                    ///< [batch, seq, hidden]
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t hidden;
};
using EmbeddingForwardKernel = void(const EmbeddingForward& args, Stream stream);

/// Adds dy into the tables' gradients, in order of (batch, seq): deterministic. Both gradients are
/// of one dtype; in 16 bits every addition is rounded.
struct EmbeddingBackward {
  const std::int32_t* tokens;
  ConstValues dy;          ///< [batch, seq, hidden]
  Values dtoken_table;     ///< [vocab, hidden], added to; null if frozen
  Values dposition_table;  ///< added to; null if frozen
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t hidden;
};
using EmbeddingBackwardKernel = void(const EmbeddingBackward& args, Stream stream);

namespace reference {
EmbeddingForwardKernel embedding_forward;
EmbeddingBackwardKernel embedding_backward;
}  // namespace reference
namespace cpu {
EmbeddingForwardKernel embedding_forward;
EmbeddingBackwardKernel embedding_backward;
}  // namespace cpu
namespace cuda {
EmbeddingForwardKernel embedding_forward;
EmbeddingBackwardKernel embedding_backward;
}  // namespace cuda

}  // namespace tessera::kernels
