#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/dropout.hpp"
#include "tessera/nn/linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Multi-head attention in which a token sees itself and the tokens before it. c_attn makes
/// queries, keys and values, and c_proj mixes the heads. The seq x seq matrix is never stored.
class CausalSelfAttention {
 public:
  /// What backward needs of forward, in device memory of the caller.
  struct Saved {
    ConstValues x;         ///< [rows, hidden], the input
    Values qkv;            ///< [rows, 3 hidden], queries, keys and values
    Values mixed;          ///< [rows, hidden], the heads' outputs
    float* log_sum_exp;    ///< [batch, heads, seq]
    float* workspace;      ///< `workspace_elems` values; not kept, so all layers may share it
    Dropout dropout = {};  ///< of the attention probabilities
    /// Memory that is idle in backward, which then works in its `lent_elems` values and may be
    /// faster (kernels::attention_backward_workspace_elems). Null: it works in `workspace`.
    float* lent = nullptr;
    std::int64_t lent_elems = 0;  ///< at least `workspace_elems`, if anything is lent
  };

  /// Names the parameters "prefix.c_attn.*" and "prefix.c_proj.*". Throws ContractError unless
  /// `heads` divides `hidden`.
  CausalSelfAttention(World& world, std::string_view prefix, std::int64_t hidden,
                      std::int64_t heads);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the fp32 elements of workspace that both directions need for activations of `compute`.
  [[nodiscard]] std::int64_t workspace_elems(BatchShape shape, DType compute) const;

  /// Computes y [rows, hidden] from saved.x, adds `residual` unless it is null, and writes what
  /// backward needs to `saved`.
  void forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape,
               ConstValues residual = {}) const;
  /// Adds the gradients of the parameters and writes dx. dy and dx are [rows, hidden]; scratch
  /// holds 4 * rows * hidden values. dx may be saved.x.
  void backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                BatchShape shape) const;

 private:
  World* world_;
  Linear c_attn_;
  Linear c_proj_;
  std::int64_t hidden_;
  std::int64_t heads_;
};

}  // namespace tessera::nn
