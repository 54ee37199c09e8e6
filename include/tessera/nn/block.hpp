#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/nn/causal_self_attention.hpp"
#include "tessera/nn/dropout.hpp"
#include "tessera/nn/mlp.hpp"
#include "tessera/nn/norm.hpp"
#include "tessera/nn/tensors.hpp"

/// Layers with a forward and a backward, and decoders, made of the public kernels and ShardedModel.
namespace tessera::nn {

enum class DropSite : std::uint32_t;

/// A block of a decoder: m = x + drop(attn(ln_1(x))), y = m + drop(mlp(ln_2(m))). `drop` drops
/// elements only if `Saved::dropout` is on.
///
/// Ranks along `tensor` share the attention's heads and the MLP's values inside. With sequence
/// parallelism each has `own` rows (TensorRanks::own) of x, m, y and of the norms' statistics, and
/// all rows of the norms' outputs. Otherwise own is rows.
class Block {
 public:
  /// The activations that backward needs, in device memory of the caller.
  ///
  /// Beside the input ln_1.x, which is another layer's output, they are 2 * hidden +
  /// attention().packed() + attention().columns() + mlp().wide_columns() + mlp().columns() values
  /// per row and hidden per own row: 15 * hidden for a GPT-2 on one rank. With mlp.activated_again
  /// mlp().columns() are left out, with norms_again 2 * hidden. There are attention().heads() fp32
  /// statistics per row, one more for each head that is normed, and per own row 2 for each layer
  /// norm or 1 for each RMSNorm.
  struct Saved {
    Norm::Saved ln_1;                 ///< of the first norm, whose x is the block's input
    CausalSelfAttention::Saved attn;  ///< of the attention
    Norm::Saved ln_2;                 ///< of the second norm
    MLP::Saved mlp;                   ///< of the MLP
    Values normed_1;                  ///< the output of ln_1, which attn.x points to
    Values middle;                    ///< m [own, hidden], which ln_2.x points to
    Values normed_2;                  ///< the output of ln_2, which mlp.x points to
    Dropout dropout = {};  ///< of both additions to the residual stream; attn has its own
    /// Whether only forward needs normed_1 and normed_2, so that they may share memory: backward
    /// then computes them again from ln_1.x and m.
    bool norms_again = false;
  };

  /// Makes a block of `config`. Throws ContractError unless the heads fit the hidden size. `norms`
  /// is the dtype of the norms' parameters; if it is not given, they have the model's.
  Block(World& world, const DecoderConfig& config, std::optional<DType> norms = {},
        const TensorRanks& ranks = {});

  /// Returns the parameters ln_1.*, attn.*, ln_2.* and mlp.*, in this order.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the attention, with the sizes of this rank's part.
  [[nodiscard]] const CausalSelfAttention& attention() const noexcept { return attn_; }
  /// Returns the first norm; the second is like it.
  [[nodiscard]] const Norm& norm() const noexcept { return ln_1_; }
  /// Returns the MLP, with the sizes of this rank's part.
  [[nodiscard]] const MLP& mlp() const noexcept { return mlp_; }
  /// Returns the fp32 elements that `Saved::attn.workspace` needs.
  [[nodiscard]] std::int64_t workspace_elems(BatchShape shape, DType compute) const {
    return attn_.workspace_elems(shape, compute);
  }

  /// Computes y from saved.ln_1.x, both [own, hidden] without overlap, and writes the activations
  /// for backward to `saved`. `shape` is the shape of the whole micro-batch. If no backward
  /// follows, y may be saved.ln_1.x.
  void forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape) const;
  /// Computes the activations for backward again from saved.ln_1.x: all of `forward` except the
  /// last product and y.
  void recompute(const Scope& scope, const Saved& saved, BatchShape shape) const;
  /// Adds the gradients of the parameters. `stream` [own, hidden] holds the gradient of y before
  /// the call and the gradient of x after it. `scratch` holds `scratch_elems` values.
  void backward(const BackwardScope& scope, const Saved& saved, Values stream, Values scratch,
                BatchShape shape) const;

  /// The gradients that the first half of a divided backward pass leaves to the second, in device
  /// memory of the caller: 4 * hidden values, attention().packed() and mlp().wide_columns() per
  /// row.
  struct Deferred {
    Values mlp_dy;     ///< [rows, hidden], the gradient of the MLP's output
    Values dwide;      ///< [rows, mlp().wide_columns()], the gradient before the activation
    Values dnormed_2;  ///< [rows, hidden], the gradient of ln_2's output
    Values attn_dy;    ///< [rows, hidden], the gradient of the attention's output
    Values dqkv;       ///< [rows, attention().packed()], of queries, keys and values
    Values dnormed_1;  ///< [rows, hidden], the gradient of ln_1's output
  };
  /// Runs the first half of `backward`, which reads parameters only: `stream` changes as in
  /// `backward`, and `deferred` is written.
  void backward_input(const Scope& scope, const Saved& saved, const Deferred& deferred,
                      Values stream, Values scratch, BatchShape shape) const;
  /// Runs the second half of `backward`: adds the gradients of the parameters, with the bits of
  /// `backward`.
  void backward_weight(const BackwardScope& scope, const Saved& saved, const Deferred& deferred,
                       Values scratch, BatchShape shape) const;

  /// Returns the number of values in `scratch` that backward needs: for a GPT-2 on one rank 5 *
  /// rows * hidden, or 6 * rows * hidden if elements are dropped.
  [[nodiscard]] std::int64_t scratch_elems(std::int64_t rows, const Dropout& dropout) const;

 private:
  struct Addition;
  void forward_attention(const Scope& scope, const Saved& saved, BatchShape shape) const;
  [[nodiscard]] std::int64_t inner_elems(std::int64_t rows) const;
  void norm(const Scope& scope, const Norm& norm, const Norm::Saved& saved, Values y,
            std::int64_t rows) const;
  /// Writes a branch's gradient, made from that of the stream, unless the two are the same.
  void enter_branch(const Scope& scope, const Dropout& dropout, DropSite site, Values stream,
                    Values branch, BatchShape shape) const;
  [[nodiscard]] bool branches_off(const Dropout& dropout) const;
  void drop_and_add(const Scope& scope, const Addition& addition) const;

  Norm ln_1_;
  CausalSelfAttention attn_;
  Norm ln_2_;
  MLP mlp_;
  TensorRanks ranks_;
  std::int64_t hidden_;
};

}  // namespace tessera::nn
