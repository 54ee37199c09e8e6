#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"

namespace tessera::nn {

/// A layer norm: y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, row by row.
class LayerNorm {
 public:
  /// The activations that backward needs, in device memory of the caller.
  struct Saved {
    ConstValues x;       ///< [rows, size], the input
    float* mean;         ///< [rows], written by forward
    float* inverse_std;  ///< [rows], 1 / sqrt(variance + 1e-5), written by forward
  };

  /// Makes a layer with the parameters "prefix.weight" and "prefix.bias". They have `dtype` if it
  /// is given, otherwise the model's. `gradient` is TensorRanks::row_gradient if each rank along
  /// `tensor` norms a slice of the rows.
  LayerNorm(std::string_view prefix, std::int64_t size, std::optional<DType> dtype = {},
            TensorGradient gradient = TensorGradient::equal);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

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
  std::optional<DType> dtype_;
  TensorGradient gradient_;
};

}  // namespace tessera::nn
