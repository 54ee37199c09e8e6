#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// c_proj(gelu(c_fc(x))), four times as wide inside, with the tanh form of GELU.
class MLP {
 public:
  struct Saved {
    ConstValues x;     ///< [rows, hidden]
    Values wide;       ///< [rows, 4 hidden], before GELU
    Values activated;  ///< [rows, 4 hidden], after it
  };

  /// Parameters "prefix.c_fc.*" and "prefix.c_proj.*".
  MLP(std::string_view prefix, std::int64_t hidden);

  [[nodiscard]] std::vector<ParameterSpec> parameters() const;

  /// The first half of `forward`: all that backward needs of it.
  void activate(const Scope& scope, const Saved& saved, std::int64_t rows) const;
  /// y [rows, hidden].
  void forward(const Scope& scope, const Saved& saved, Values y, std::int64_t rows) const;
  /// dy, dx [rows, hidden]; scratch 4 rows hidden.
  void backward(const BackwardScope& scope, const Saved& saved, const GradientFlow& flow,
                std::int64_t rows) const;

 private:
  Linear c_fc_;
  Linear c_proj_;
};

}  // namespace tessera::nn
