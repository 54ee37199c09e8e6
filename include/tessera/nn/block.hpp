#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/nn/causal_self_attention.hpp"
#include "tessera/nn/dropout.hpp"
#include "tessera/nn/layer_norm.hpp"
#include "tessera/nn/mlp.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// A GPT-2 block: m = x + drop(attn(ln_1(x))), y = m + drop(mlp(ln_2(m))), where nothing is dropped
/// unless `Saved::dropout` says so.
class Block {
 public:
  /// Memory per row: 15 hidden + heads + 4 values, and the input, which is another's output.
  struct Saved {
    LayerNorm::Saved ln_1;
    CausalSelfAttention::Saved attn;
    LayerNorm::Saved ln_2;
    MLP::Saved mlp;
    Values normed_1;  ///< ln_1's output: what attn.x points to
    Values middle;    ///< m: what ln_2.x points to
    Values normed_2;  ///< ln_2's output: what mlp.x points to
    Dropout dropout = {};
  };

  /// `norms`: the dtype of the norms' parameters, if not the model's.
  Block(World& world, std::int64_t hidden, std::int64_t heads, std::optional<DType> norms = {});

  /// ln_1.*, attn.*, ln_2.*, mlp.*: in this order.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  [[nodiscard]] std::int64_t workspace_elems(BatchShape shape, DType compute) const {
    return attn_.workspace_elems(shape, compute);
  }

  /// From saved.ln_1.x to y, both [rows, hidden], no overlap.
  void forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape) const;
  /// From saved.ln_1.x again what backward needs of `forward`, which is less than all of it.
  void recompute(const Scope& scope, const Saved& saved, BatchShape shape) const;
  /// `stream` [rows, hidden], the gradient of the residual stream, is that of y before and that
  /// of x after. scratch: `scratch_elems`.
  void backward(const BackwardScope& scope, const Saved& saved, Values stream, Values scratch,
                BatchShape shape) const;

  /// 5 rows hidden, and one more if something is dropped.
  [[nodiscard]] std::int64_t scratch_elems(std::int64_t rows, const Dropout& dropout) const {
    return (dropout.on() ? 6 : 5) * rows * hidden_;
  }

 private:
  void forward_attention(const Scope& scope, const Saved& saved, BatchShape shape) const;
  void add(const Scope& scope, ConstValues residual, Values y, std::int64_t rows) const;

  LayerNorm ln_1_;
  CausalSelfAttention attn_;
  LayerNorm ln_2_;
  MLP mlp_;
  std::int64_t hidden_;
};

}  // namespace tessera::nn
