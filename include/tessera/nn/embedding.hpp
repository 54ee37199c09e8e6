#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Returns the number of rows of the table in the head's products: `vocab` rounded up to `multiple`
/// (kernels::fast_row_multiple), but at most `logits_row_elems` and at least `vocab`.
[[nodiscard]] std::int64_t head_rows(std::int64_t vocab, std::int64_t logits_row_elems,
                                     std::int64_t multiple);

/// Token and position embeddings, and the head that is tied to the token embedding: one table,
/// "wte.weight", turns tokens into vectors and vectors into logits.
///
/// On CUDA products are fast for whole rows, multiples of 64. The table's place has room for them,
/// and the head multiplies by `head_rows` of them. Zeros in the room give zeros in the gaps of the
/// logits, of their gradient and of the table's gradient.
class Embedding {
 public:
  /// The sizes of the tables.
  struct Sizes {
    std::int64_t vocab;                 ///< the number of tokens
    std::int64_t positions;             ///< the number of positions
    std::int64_t hidden;                ///< the length of a vector
    std::int64_t logits_row_elems = 0;  ///< from one row of logits to the next; 0: no gaps
  };

  /// Names the parameters "wte.weight" [vocab, hidden] and "wpe.weight" [positions, hidden].
  Embedding(World& world, Sizes sizes);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// Computes y[b, t, :] = wte[tokens[b, t], :] + wpe[t, :]. Tokens are in device memory and lie in
  /// [0, vocab); seq <= positions.
  void forward(const Scope& scope, const std::int32_t* tokens, Values y, BatchShape shape) const {
    forward(scope, scope, tokens, y, shape);
  }
  /// Does the same with a unit for each table.
  void forward(const Scope& wte, const Scope& wpe, const std::int32_t* tokens, Values y,
               BatchShape shape) const;
  /// Adds dy [rows, hidden] to the tables' gradients.
  void backward(const BackwardScope& scope, const std::int32_t* tokens, ConstValues dy,
                BatchShape shape) const {
    backward(scope, scope, tokens, dy, shape);
  }
  /// Does the same with a unit for each table.
  void backward(const BackwardScope& wte, const BackwardScope& wpe, const std::int32_t* tokens,
                ConstValues dy, BatchShape shape) const;

  /// Computes logits [rows, vocab] = x wte^T, and writes zeros in the gaps as far as the table has
  /// room.
  void head(const Scope& scope, ConstValues x, Values logits, std::int64_t rows) const;
  /// Adds the gradient of wte and writes dx [rows, hidden]. The gaps of dlogits hold what `head`
  /// left there.
  void head_backward(const BackwardScope& scope, ConstValues x, ConstValues dlogits, Values dx,
                     std::int64_t rows) const;

 private:
  Sizes sizes_;
  std::int64_t table_rows_;  ///< of the head's products: vocab, and those that it has room for
};

}  // namespace tessera::nn
