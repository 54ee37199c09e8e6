#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Rows of the table that the head's products are of: `vocab`, rounded up to a `multiple`
/// (kernels::fast_row_multiple) as far as rows of logits have place.
[[nodiscard]] std::int64_t head_rows(std::int64_t vocab, std::int64_t logits_row_elems,
                                     std::int64_t multiple);

/// Token and position embeddings, and the head tied to the former: one table, "wte.weight", turns
/// tokens into vectors and vectors into logits.
///
/// On CUDA products want whole rows, multiples of 64: the table's place has room for them, and the
/// head's products are of `head_rows` of them. Zeros in the room give zeros in the gaps of the
/// logits, of their gradient and of the table's.
class Embedding {
 public:
  struct Sizes {
    std::int64_t vocab;
    std::int64_t positions;
    std::int64_t hidden;
    std::int64_t logits_row_elems = 0;  ///< from one row of logits to the next; 0: no gaps
  };

  /// Parameters "wte.weight" [vocab, hidden] and "wpe.weight" [positions, hidden].
  Embedding(World& world, Sizes sizes);

  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// y[b, t, :] = wte[tokens[b, t], :] + wpe[t, :]. Tokens lie in [0, vocab); seq <= positions.
  void forward(const Scope& scope, const std::int32_t* tokens, Values y, BatchShape shape) const;
  /// Adds dy [rows, hidden] into the tables' gradients.
  void backward(const BackwardScope& scope, const std::int32_t* tokens, ConstValues dy,
                BatchShape shape) const;

  /// logits [rows, vocab] = x wte^T, and zeros in the gaps as far as the table has room.
  void head(const Scope& scope, ConstValues x, Values logits, std::int64_t rows) const;
  /// Adds the gradient of wte and writes dx [rows, hidden]. The gaps of dlogits hold what `head`
  /// has left there.
  void head_backward(const BackwardScope& scope, ConstValues x, ConstValues dlogits, Values dx,
                     std::int64_t rows) const;

 private:
  Sizes sizes_;
  std::int64_t table_rows_;  ///< of the head's products: vocab, and those that it has room for
};

}  // namespace tessera::nn
