#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of embedding_forward. Both tables have one dtype; y may have another.
struct EmbeddingForward {
  const std::int32_t* tokens;  ///< [batch, seq], each in [0, vocab), in device memory
  ConstValues token_table;     ///< [vocab, hidden], or some of its rows, see table_tokens
  ConstValues position_table;  ///< [at least seq, hidden]; null: tokens alone
  Values y;                    ///< [batch, seq, hidden], overwritten
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t hidden;
  std::int64_t first_token = 0;  ///< the token of the table's first row
  /// The rows of the table: tokens outside [first_token, first_token + table_tokens) have a vector
  /// of zeros. Below 0: every token has a row.
  std::int64_t table_tokens = -1;
};

/// Computes y[b, t, :] = token_table[tokens[b, t], :] + position_table[t, :].
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, a null or fp64 array, or tables of two dtypes. Tokens
///         are not looked at before the kernel runs: the caller checks them.
void embedding_forward(const EmbeddingForward& args, Stream stream);

/// Arguments of embedding_backward. Both gradients have one dtype.
struct EmbeddingBackward {
  const std::int32_t* tokens;  ///< [batch, seq], as in forward
  ConstValues dy;              ///< [batch, seq, hidden]
  Values dtoken_table;     ///< [vocab, hidden], or some rows, added to; null: frozen, not computed
  Values dposition_table;  ///< [at least seq, hidden], added to; null: frozen or none
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t hidden;
  std::int64_t first_token = 0;  ///< as in forward; other tokens have no gradient here
  std::int64_t table_tokens = -1;
};

/// Adds dy into the tables' gradients.
///
/// Bits:   additions are made in the order of (batch, seq), in 16 bits each is rounded: the same on
///         every run.
/// Memory: CUDA uses the stream's workspace.
/// Errors: as embedding_forward.
void embedding_backward(const EmbeddingBackward& args, Stream stream);

}  // namespace tessera::kernels
