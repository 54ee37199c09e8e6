#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of embedding_forward. Both tables have one dtype; y may have another.
struct EmbeddingForward {
  const std::int32_t* tokens;    ///< [batch, seq], each in [0, vocab), in device memory
  ConstValues token_table;       ///< [vocab, hidden], or some of its rows (table_tokens)
  ConstValues position_table;    ///< [at least seq, hidden]; null: no position is added
  Values y;                      ///< [batch, seq, hidden], overwritten
  std::int64_t batch;            ///< samples
  std::int64_t seq;              ///< tokens of a sample
  std::int64_t hidden;           ///< elements of a token's vector
  std::int64_t first_token = 0;  ///< the token of the table's first row
  /// The number of rows of the table. Tokens outside [first_token, first_token + table_tokens) have
  /// a vector of zeros. Below 0: every token has a row.
  std::int64_t table_tokens = -1;
  /// [batch, seq] in device memory: the position of token t is t - first_key[t], as if its document
  /// began there (see AttentionForward::first_key); null: it is t. A value outside [0, t] counts as
  /// the nearer end.
  const std::int32_t* first_key = nullptr;
};

/// Computes y[b, t, :] = token_table[tokens[b, t], :] + position_table[position of t, :].
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, a null or fp64 array, or tables of different dtypes.
///         Tokens are not checked: the caller does that.
void embedding_forward(const EmbeddingForward& args, Stream stream);

/// Arguments of embedding_backward. Both gradients have one dtype.
struct EmbeddingBackward {
  const std::int32_t* tokens;  ///< [batch, seq], as in forward
  ConstValues dy;              ///< [batch, seq, hidden]
  Values dtoken_table;     ///< [vocab, hidden] or some rows, added to; null: frozen, not computed
  Values dposition_table;  ///< [at least seq, hidden], added to; null: frozen or no position table
  std::int64_t batch;      ///< samples
  std::int64_t seq;        ///< tokens of a sample
  std::int64_t hidden;     ///< elements of a token's vector
  std::int64_t first_token = 0;    ///< the token of the table's first row, as in forward
  std::int64_t table_tokens = -1;  ///< rows of the table, as in forward; other tokens add nothing
  const std::int32_t* first_key = nullptr;  ///< as in forward
};

/// Adds dy to the gradients of the tables.
///
/// Bits:   the same in every run: rows are added in the order of (batch, seq). In 16 bits each sum
///         is rounded.
/// Memory: CUDA uses the stream's workspace.
/// Errors: those of embedding_forward.
void embedding_backward(const EmbeddingBackward& args, Stream stream);

}  // namespace tessera::kernels
