#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/column_linear.hpp"
#include "tessera/nn/row_linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// The MLP of a GPT-2 block: y = c_proj(gelu(c_fc(x))), with 4 * hidden values between the products
/// and the tanh form of GELU. Ranks along `tensor` share these values: each has columns() of them.
class MLP {
 public:
  /// The activations that backward needs, in device memory of the caller.
  struct Saved {
    ConstValues x;     ///< [rows, hidden], the input
    Values wide;       ///< [rows, columns()], before GELU
    Values activated;  ///< [rows, columns()], after GELU
    /// Whether only forward needs `activated`: backward then computes it again from `wide`.
    bool gelu_again = false;
    /// [rows, hidden], scratch memory of forward with sequence parallelism; all layers may share
    /// it.
    Values whole = {};
  };

  /// Makes a layer with the parameters "prefix.c_fc.*" and "prefix.c_proj.*".
  MLP(std::string_view prefix, std::int64_t hidden, const TensorRanks& ranks = {});

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// Returns the number of values that this rank has between the products: 4 * hidden, or its part
  /// of them.
  [[nodiscard]] std::int64_t columns() const noexcept { return c_fc_.columns(); }

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

  /// Runs the first half of backward: writes dwide [rows, columns()], for the second half, and dx.
  /// The scope may be of any kind.
  void input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dwide,
                      Values dx, std::int64_t rows) const;
  /// Runs the second half of backward: adds the gradients of the parameters. `scratch` [rows,
  /// columns()] may be overwritten.
  void parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                           ConstValues dwide, Values scratch, std::int64_t rows) const;

 private:
  ColumnLinear c_fc_;
  RowLinear c_proj_;
};

}  // namespace tessera::nn
