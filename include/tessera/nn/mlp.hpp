#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/column_linear.hpp"
#include "tessera/nn/decoder_config.hpp"
#include "tessera/nn/row_linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// The MLP of a decoder's block: y = c_proj(activated(c_fc(x))), with DecoderConfig::mlp_elems
/// values between the products. The products and the activation are those of MLPKind; of a gated
/// MLP, c_fc makes a gate and its values side by side. Ranks along `tensor` share the values
/// between the products: each has columns() of them.
class MLP {
 public:
  /// The activations that backward needs, in device memory of the caller.
  struct Saved {
    ConstValues x;  ///< [rows, hidden], the input
    /// [rows, wide_columns()], before the activation. Backward of a gated MLP overwrites it.
    Values wide;
    Values activated;  ///< [rows, columns()], after the activation
    /// Whether only forward needs `activated`: backward then computes it again from `wide`.
    bool activated_again = false;
    /// [rows, hidden], scratch memory of forward with sequence parallelism; all layers may share
    /// it.
    Values whole = {};
  };

  /// Makes a layer with the parameters "prefix.c_fc.*" and "prefix.c_proj.*".
  MLP(std::string_view prefix, const DecoderConfig& config, const TensorRanks& ranks = {});

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// Returns the number of values that this rank has between the products.
  [[nodiscard]] std::int64_t columns() const noexcept { return c_proj_.columns(); }
  /// Returns the number of values of this rank in a row of c_fc's output: columns(), or twice as
  /// many if the MLP is gated.
  [[nodiscard]] std::int64_t wide_columns() const noexcept { return c_fc_.columns(); }

  /// Runs the first half of `forward`, which writes all activations for backward.
  void activate(const Scope& scope, const Saved& saved, std::int64_t rows) const;
  /// Computes y [rows, hidden] from saved.x, adds `residual` unless it is null, and writes the
  /// activations for backward to `saved`. With sequence parallelism y and residual are this rank's
  /// rows, and the caller has gathered saved.x.
  void forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows,
               ConstValues residual = {}) const;
  /// Adds the gradients of the parameters and writes dx. dy and dx are [rows, hidden]; scratch
  /// holds rows * columns() values. dx may be saved.x. With sequence parallelism the caller has
  /// gathered dy and saved.x, and dx is written in this rank's own rows.
  void backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                std::int64_t rows) const;

  // The halves of backward, for schedules that divide it. The first takes a scope of any kind.

  /// Runs the first half of backward: writes dwide [rows, wide_columns()], for the second half, and
  /// dx. `flow.scratch` is used as by `backward`. The scope may be of any kind.
  void input_gradient(const Scope& scope, const Saved& saved, const GradientFlow& flow,
                      Values dwide, std::int64_t rows) const;
  /// Runs the second half of backward: adds the gradients of the parameters. `scratch` [rows,
  /// columns()] may be overwritten.
  void parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                           ConstValues dwide, Values scratch, std::int64_t rows) const;

 private:
  /// Whether products apply the activation themselves.
  [[nodiscard]] bool fused() const noexcept { return kind_ == MLPKind::gelu_tanh; }
  /// activated = f(wide), apart from the products.
  void apply(const Scope& scope, ConstValues wide, Values activated, std::int64_t rows) const;
  /// dwide from dactivated: it may take its place, or that of `wide` if the MLP is gated.
  void apply_backward(const Scope& scope, ConstValues wide, ConstValues dactivated, Values dwide,
                      std::int64_t rows) const;
  /// What c_proj has multiplied: computed again in `scratch` if it was not kept.
  [[nodiscard]] ConstValues activated_of(const Scope& scope, const Saved& saved, Values scratch,
                                         std::int64_t rows) const;

  MLPKind kind_;
  ColumnLinear c_fc_;
  RowLinear c_proj_;
};

}  // namespace tessera::nn
