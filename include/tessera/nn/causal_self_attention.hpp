#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/kernels/attention.hpp"
#include "tessera/nn/column_linear.hpp"
#include "tessera/nn/dropout.hpp"
#include "tessera/nn/row_linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Multi-head attention in which a token sees itself and the tokens before it. c_attn makes
/// queries, keys and values, and c_proj mixes the heads. The seq x seq matrix is never stored.
/// Ranks along `tensor` share the heads: each has heads() of them, which may be none, and columns()
/// values of them a row.
class CausalSelfAttention {
 public:
  /// The activations that backward needs, in device memory of the caller.
  struct Saved {
    ConstValues x;         ///< [rows, hidden], the input
    Values qkv;            ///< [rows, 3 columns()], queries, keys and values
    Values mixed;          ///< [rows, columns()], the heads' outputs
    float* log_sum_exp;    ///< [batch, heads(), seq], logarithms of the softmax's sums
    float* workspace;      ///< [workspace_elems], scratch memory; all layers may share it
    Dropout dropout = {};  ///< of the attention probabilities
    /// Idle memory that backward uses as its workspace, which may be faster
    /// (kernels::attention_backward_workspace_elems). Null: backward uses `workspace`.
    float* lent = nullptr;
    std::int64_t lent_elems = 0;  ///< fp32 elements of `lent`: at least `workspace_elems`
    /// [rows, hidden], scratch memory of forward with sequence parallelism; all layers may share
    /// it.
    Values whole = {};
  };

  /// Makes a layer with the parameters "prefix.c_attn.*" and "prefix.c_proj.*". Throws
  /// ContractError unless `heads` divides `hidden`.
  CausalSelfAttention(World& world, std::string_view prefix, std::int64_t hidden,
                      std::int64_t heads, const TensorRanks& ranks = {});

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the number of this rank's heads.
  [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
  /// Returns the number of values of this rank's heads in a row: hidden, or its part of it.
  [[nodiscard]] std::int64_t columns() const noexcept { return c_proj_.columns(); }
  /// Returns the fp32 elements of workspace that both directions need for activations of type
  /// `compute`.
  [[nodiscard]] std::int64_t workspace_elems(BatchShape shape, DType compute) const;

  /// Computes y [rows, hidden] from saved.x, adds `residual` unless it is null, and writes the
  /// activations for backward to `saved`. With sequence parallelism y and residual are this rank's
  /// rows, and the caller has gathered saved.x.
  void forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape,
               ConstValues residual = {}) const;
  /// Adds the gradients of the parameters and writes dx. dy and dx are [rows, hidden]; scratch
  /// holds 4 * rows * columns() values. dx may be saved.x. With sequence parallelism the caller has
  /// gathered dy and saved.x, and dx is written in this rank's own rows.
  void backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                BatchShape shape) const;

  // The halves of backward, for schedules that divide it. The first takes a scope of any kind.

  /// Runs the first half of backward: writes dqkv [rows, 3 * columns()], for the second half, and
  /// dx. `dmixed` [rows, columns()] is scratch memory. The scope may be of any kind.
  void input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dmixed,
                      Values dqkv, Values dx, BatchShape shape) const;
  /// Runs the second half of backward: adds the gradients of the parameters.
  void parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                           ConstValues dqkv, std::int64_t rows) const;

 private:
  [[nodiscard]] kernels::AttentionShape kernel_shape(BatchShape shape) const;
  void heads_backward(const Scope& scope, const Saved& saved, ConstValues dmixed, Values dqkv,
                      BatchShape shape) const;

  World* world_;
  ColumnLinear c_attn_;
  RowLinear c_proj_;
  std::int64_t head_size_;
  std::int64_t heads_;
  std::int64_t first_head_;
};

}  // namespace tessera::nn
