#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/kernels/attention.hpp"
#include "tessera/nn/column_linear.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tessera/nn/dropout.hpp"
#include "tessera/nn/row_linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// The tables of rotary positions, in device memory: see kernels::rotary_angles.
struct RotaryTables {
  const float* cosines = nullptr;  ///< [seq, DecoderConfig::rotated_elems() / 2]
  const float* sines = nullptr;    ///< [seq, DecoderConfig::rotated_elems() / 2]
};

/// Multi-head attention in which a token sees itself and the tokens before it. c_attn makes
/// queries, keys and values, and c_proj mixes the heads. The seq x seq matrix is never stored.
/// DecoderConfig says how many heads of keys and values there are, whether queries and keys are
/// normed head by head (q_norm, k_norm) and rotated, and whether products have biases.
///
/// Ranks along `tensor` share the heads of keys and the query heads that use them: each has heads()
/// and key_heads() of them, which may be none, and columns() values of query heads a row.
class CausalSelfAttention {
 public:
  /// The activations that backward needs, in device memory of the caller.
  struct Saved {
    ConstValues x;            ///< [rows, hidden], the input
    Values qkv;               ///< [rows, packed()]: queries, keys and values, before head norms
    Values mixed;             ///< [rows, columns()], the heads' outputs
    float* log_sum_exp;       ///< [batch, heads(), seq], logarithms of the softmax's sums
    float* workspace;         ///< [workspace_elems], scratch memory; all layers may share it
    Dropout dropout = {};     ///< of the attention probabilities
    RotaryTables rotary{};    ///< with rotary positions
    std::int64_t window = 0;  ///< a token sees this many tokens at most; 0: all before it
    /// [rows]: where each token's document begins in its sequence; null: with the sequence.
    const std::int32_t* first_key = nullptr;
    /// With head norms: [rows, packed()], scratch memory of forward; all layers may share it.
    Values normed = {};
    /// With head norms: [rows * (heads() + key_heads())], of the queries, then of the keys.
    float* inverse_rms = nullptr;
    /// Idle memory that backward uses as its workspace, which may be faster
    /// (kernels::attention_backward_workspace_elems). Null: backward uses `workspace`.
    float* lent = nullptr;
    std::int64_t lent_elems = 0;  ///< fp32 elements of `lent`: at least `workspace_elems`
    /// [rows, hidden], scratch memory of forward with sequence parallelism; all layers may share
    /// it.
    Values whole = {};
  };

  /// Makes a layer with the parameters "prefix.c_attn.*" and "prefix.c_proj.*" and, with head
  /// norms, "prefix.q_norm.weight" and "prefix.k_norm.weight", of the dtype `norms` if it is given.
  /// Throws ContractError unless the heads fit the hidden size.
  CausalSelfAttention(World& world, std::string_view prefix, const DecoderConfig& config,
                      const TensorRanks& ranks = {}, std::optional<DType> norms = {});

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns the number of this rank's query heads.
  [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
  /// Returns the number of this rank's heads of keys and of values.
  [[nodiscard]] std::int64_t key_heads() const noexcept { return key_heads_; }
  /// Returns the number of values of this rank's query heads in a row: hidden in a GPT-2, or its
  /// part of it.
  [[nodiscard]] std::int64_t columns() const noexcept { return c_proj_.columns(); }
  /// Returns the number of values of this rank's queries, keys and values in a row.
  [[nodiscard]] std::int64_t packed() const noexcept { return c_attn_.columns(); }
  /// Returns the number of values a row that `scratch` of backward needs.
  [[nodiscard]] std::int64_t scratch_columns() const noexcept {
    return columns() + packed() + (config_.head_norms ? packed() : 0);
  }
  /// Returns the fp32 elements of workspace that both directions need for activations of type
  /// `compute`.
  [[nodiscard]] std::int64_t workspace_elems(BatchShape shape, DType compute) const;
  /// Returns the sizes of the attention kernels' problem.
  [[nodiscard]] kernels::AttentionShape kernel_shape(BatchShape shape,
                                                     std::int64_t window = 0) const;

  /// Computes y [rows, hidden] from saved.x, adds `residual` unless it is null, and writes the
  /// activations for backward to `saved`. With sequence parallelism y and residual are this rank's
  /// rows, and the caller has gathered saved.x.
  void forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape,
               ConstValues residual = {}) const;
  /// Adds the gradients of the parameters and writes dx. dy and dx are [rows, hidden]; scratch
  /// holds rows * scratch_columns() values. dx may be saved.x. With sequence parallelism the caller
  /// has gathered dy and saved.x, and dx is written in this rank's own rows.
  void backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                BatchShape shape) const;

  // The halves of backward, for schedules that divide it. The first takes a scope of any kind.

  /// Runs the first half of backward: writes dqkv [rows, packed()], for the second half, and dx.
  /// `scratch` holds rows * scratch_columns() values. The scope may be of any kind.
  void input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values scratch,
                      Values dqkv, Values dx, BatchShape shape) const;
  /// Runs the second half of backward: adds the gradients of the parameters. It changes dqkv.
  void parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                           Values dqkv, std::int64_t rows) const;

 private:
  struct HeadNorm;
  [[nodiscard]] std::vector<HeadNorm> head_norms() const;
  [[nodiscard]] kernels::Rotary rotation(const Saved& saved, Values qkv, BatchShape shape) const;
  /// Norms and rotates queries and keys. Returns what attention reads: saved.qkv or, with head
  /// norms, `normed`.
  [[nodiscard]] ConstValues prepare(const Scope& scope, const Saved& saved, Values normed,
                                    BatchShape shape, bool again) const;
  /// From the gradient of the heads' outputs to that of queries and keys before their rotation.
  void heads_backward(const Scope& scope, const Saved& saved, ConstValues dmixed, Values dqkv,
                      Values normed, BatchShape shape) const;
  /// Turns the gradient of normed queries and keys into that of c_attn's output, in place. Adds the
  /// gradients of the norms' weights if `gradients` is given.
  void norms_backward(const Scope& scope, const Saved& saved, Values dqkv, std::int64_t rows,
                      const BackwardScope* gradients) const;

  World* world_;
  DecoderConfig config_;
  ColumnLinear c_attn_;
  RowLinear c_proj_;
  std::string q_norm_;
  std::string k_norm_;
  std::optional<DType> norms_;
  std::int64_t key_heads_;
  std::int64_t heads_;
  std::int64_t first_head_;
  bool several_ranks_;
};

}  // namespace tessera::nn
