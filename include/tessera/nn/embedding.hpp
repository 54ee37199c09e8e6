#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/tensor_ranks.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Returns the number of rows of the token table in the head's products: `vocab` rounded up to a
/// multiple of `multiple` (kernels::fast_row_multiple), but at most `logits_row_elems` and at least
/// `vocab`.
[[nodiscard]] std::int64_t head_rows(std::int64_t vocab, std::int64_t logits_row_elems,
                                     std::int64_t multiple);

/// Token and position embeddings, and the head, which turns vectors into logits. A tied head
/// multiplies by the table of tokens, "wte.weight"; another has a table of its own,
/// "lm_head.weight".
///
/// On CUDA products are fast if their number of rows is a multiple of 64. The head's table has room
/// for such a number (ParameterSpec::room), and the head multiplies by `head_rows` rows. Zeros in
/// the room give zeros in the gaps of the logits, of their gradient and of the table's gradient.
///
/// Ranks along `tensor` share the vocabulary: each has the vectors of tokens(), in multiples of
/// kernels::fast_row_multiple, and computes the logits of these tokens only (see CrossEntropy).
/// Every rank has all positions.
class Embedding {
 public:
  /// The sizes of the tables.
  struct Sizes {
    std::int64_t vocab;                 ///< the number of tokens
    std::int64_t positions;             ///< the number of positions; 0: no table of them
    std::int64_t hidden;                ///< the length of a vector
    std::int64_t logits_row_elems = 0;  ///< elements from one row of logits to the next; 0: no gaps
    bool tied_head = true;              ///< whether the head multiplies by the table of tokens
  };

  /// Makes a layer with the parameters "wte.weight" [vocab, hidden] and, unless there are no
  /// positions, "wpe.weight" [positions, hidden].
  Embedding(World& world, Sizes sizes, TensorRanks ranks = {});

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the parameter of a head of its own, "lm_head.weight" [vocab, hidden], to declare in
  /// the unit whose scopes `head` is called with; nothing if the head is tied.
  [[nodiscard]] std::vector<ParameterSpec> head_parameters() const;

  /// Returns this rank's tokens: all, or its part of them, which may be empty.
  [[nodiscard]] Range tokens() const noexcept { return tokens_; }
  /// Returns the elements from one row of this rank's logits to the next: Sizes::logits_row_elems,
  /// or the number of tokens(), which Sizes::logits_row_elems rounds up to a multiple of 64.
  [[nodiscard]] std::int64_t logits_row_elems() const noexcept { return logits_row_elems_; }

  /// Computes y[b, t, :] = wte[tokens[b, t], :] + wpe[t, :], without positions the first. Tokens
  /// are in device memory and lie in [0, vocab); seq <= positions. With sequence parallelism y has
  /// this rank's rows (TensorRanks::own), and `whole` [rows, hidden] is overwritten. Positions
  /// begin anew with each document if `first_key` is given (kernels::EmbeddingForward).
  void forward(const Scope& scope, const std::int32_t* tokens, Values y, BatchShape shape,
               Values whole = {}, const std::int32_t* first_key = nullptr) const {
    forward(scope, scope, tokens, y, shape, whole, first_key);
  }
  /// Does the same as the other `forward` if each table has a unit of its own.
  void forward(const Scope& wte, const Scope& wpe, const std::int32_t* tokens, Values y,
               BatchShape shape, Values whole = {}, const std::int32_t* first_key = nullptr) const;
  /// Adds dy [rows, hidden] to the tables' gradients. With sequence parallelism dy has this rank's
  /// rows, and `whole` [rows, hidden] is overwritten.
  void backward(const BackwardScope& scope, const std::int32_t* tokens, ConstValues dy,
                BatchShape shape, Values whole = {},
                const std::int32_t* first_key = nullptr) const {
    backward(scope, scope, tokens, dy, shape, whole, first_key);
  }
  /// Does the same as the other `backward` if each table has a unit of its own.
  void backward(const BackwardScope& wte, const BackwardScope& wpe, const std::int32_t* tokens,
                ConstValues dy, BatchShape shape, Values whole = {},
                const std::int32_t* first_key = nullptr) const;

  /// Computes logits [rows, tokens] = x table^T for this rank's tokens(). Gaps become zero as far
  /// as the table has room. With sequence parallelism the caller has gathered x.
  void head(const Scope& scope, ConstValues x, Values logits, std::int64_t rows) const;
  /// Adds the gradient of the head's table and writes dx [rows, hidden]. The gaps of dlogits must
  /// be as `head` left them. With several ranks dx is this rank's summand: TensorRanks::sum adds
  /// them.
  void head_backward(const BackwardScope& scope, ConstValues x, ConstValues dlogits, Values dx,
                     std::int64_t rows) const;

 private:
  Sizes sizes_;
  TensorRanks ranks_;
  std::vector<ParameterSpec> parameters_;
  std::vector<ParameterSpec> head_parameters_;
  std::string_view head_table_;
  Range tokens_;
  std::int64_t table_rows_;  ///< rows in the head's products: tokens and room
  std::int64_t logits_row_elems_;
};

}  // namespace tessera::nn
