#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y[b, t, :] = tokens_table[tokens[b, t], :] + positions_table[t, :].
struct EmbeddingForward {
  const std::int32_t* tokens;   ///< [batch, seq], each in [0, vocab)
  const float* token_table;     ///< [vocab, hidden]
  const float* position_table;  ///< [at least seq, hidden]
  float* y;                     ///< [batch, seq, hidden]
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t hidden;
};
using EmbeddingForwardKernel = void(const EmbeddingForward& args, Stream stream);

/// Adds dy into the tables' gradients, in order of (batch, seq): deterministic.
struct EmbeddingBackward {
  const std::int32_t* tokens;
  const float* dy;         ///< [batch, seq, hidden]
  float* dtoken_table;     ///< [vocab, hidden], added to; null if frozen
  float* dposition_table;  ///< added to; null if frozen
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

}  // namespace tessera::kernels
