#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/nn/decoder_config.hpp"

namespace tessera::nn {

/// How a Norm computes, and how its parameters are kept.
struct NormOptions {
  NormKind kind = NormKind::layer_norm;  ///< a layer norm or an RMSNorm
  float eps = 1e-5F;                     ///< of an RMSNorm; a layer norm has 1e-5
  std::optional<DType> dtype = {};       ///< of the parameters, if not the model's
  /// TensorRanks::row_gradient if each rank along `tensor` norms a slice of the rows.
  TensorGradient gradient = TensorGradient::equal;
};

/// A norm, row by row: a layer norm, y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, or an
/// RMSNorm, y = x / sqrt(mean(x^2) + eps) * weight.
class Norm {
 public:
  /// The activations that backward needs, in device memory of the caller.
  struct Saved {
    ConstValues x;   ///< [rows, size], the input
    float* mean;     ///< [rows], written by forward; an RMSNorm has none: null
    float* inverse;  ///< [rows], 1 / the square root above, written by forward
  };

  /// Makes a layer with the parameters "prefix.weight" and, for a layer norm, "prefix.bias".
  Norm(std::string_view prefix, std::int64_t size, const NormOptions& options = {});

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  /// Returns whether `Saved::mean` is written.
  [[nodiscard]] bool has_mean() const noexcept { return options_.kind == NormKind::layer_norm; }

  /// Computes y [rows, size] from saved.x, and writes the statistics.
  void forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows) const;
  /// Adds the gradients of the parameters, and adds the gradient of the input to dx, which in a
  /// residual block already holds the other branch's gradient.
  void backward(const BackwardScope& scope, const Saved& saved, ConstValues dy, Values dx,
                std::int64_t rows) const;

  // The halves of backward, for schedules that divide it. The first takes a scope of any kind.

  /// Runs the first half of backward: adds the gradient of the input to dx. The scope may be of any
  /// kind.
  void input_gradient(const Scope& scope, const Saved& saved, ConstValues dy, Values dx,
                      std::int64_t rows) const;
  /// Runs the second half of backward: adds the gradients of the parameters. `scratch` [rows, size]
  /// is overwritten.
  void parameter_gradients(const BackwardScope& scope, const Saved& saved, ConstValues dy,
                           Values scratch, std::int64_t rows) const {
    backward(scope, saved, dy, scratch, rows);
  }

 private:
  std::string weight_;
  std::string bias_;
  std::int64_t size_;
  NormOptions options_;
};

}  // namespace tessera::nn
