#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// y = c_proj(gelu(c_fc(x))), with 4 * hidden values inside and the tanh form of GELU.
class MLP {
 public:
  /// What backward needs of forward, in device memory of the caller.
  struct Saved {
    ConstValues x;     ///< [rows, hidden], the input
    Values wide;       ///< [rows, 4 hidden], before GELU
    Values activated;  ///< [rows, 4 hidden], after it
    /// Whether `activated` is needed in forward alone: backward then computes it again from `wide`.
    bool gelu_again = false;
  };

  /// Names the parameters "prefix.c_fc.*" and "prefix.c_proj.*".
  MLP(std::string_view prefix, std::int64_t hidden);

  /// Returns the parameters to declare in the unit whose scopes the layer is called with.
  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// Runs the first half of `forward`, which writes all that backward needs.
  void activate(const Scope& scope, const Saved& saved, std::int64_t rows) const;
  /// Computes y [rows, hidden] from saved.x, adds `residual` unless it is null, and writes what
  /// backward needs to `saved`.
  void forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows,
               ConstValues residual = {}) const;
  /// Adds the gradients of the parameters and writes dx. dy and dx are [rows, hidden]; scratch
  /// holds 4 * rows * hidden values. dx may be saved.x.
  void backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                std::int64_t rows) const;

 private:
  Linear c_fc_;
  Linear c_proj_;
  std::int64_t hidden_;
};

}  // namespace tessera::nn
