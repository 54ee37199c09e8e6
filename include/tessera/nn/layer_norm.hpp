#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"

namespace tessera::nn {

/// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, row by row.
class LayerNorm {
 public:
  /// What backward needs of forward: its input and, per row, two statistics.
  struct Saved {
    ConstValues x;       ///< [rows, size]
    float* mean;         ///< [rows], written by forward
    float* inverse_std;  ///< [rows], written by forward
  };

  /// Parameters "prefix.weight" and "prefix.bias", of `dtype` if given, else of the model's.
  LayerNorm(std::string_view prefix, std::int64_t size, std::optional<DType> dtype = {});

  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// y [rows, size].
  void forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows) const;
  /// *Adds* the gradient of the input to dx: in a residual block it is there already.
  void backward(const BackwardScope& scope, const Saved& saved, ConstValues dy, Values dx,
                std::int64_t rows) const;

 private:
  std::string weight_;
  std::string bias_;
  std::int64_t size_;
  std::optional<DType> dtype_;
};

}  // namespace tessera::nn
