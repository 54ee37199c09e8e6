#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/nn/dropout.hpp"
#include "tessera/nn/linear.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Multi-head attention in which a token sees itself and what came before: c_attn makes queries,
/// keys and values, c_proj mixes the heads. The seq x seq matrix is never held.
class CausalSelfAttention {
 public:
  struct Saved {
    ConstValues x;         ///< [rows, hidden]
    Values qkv;            ///< [rows, 3 hidden]
    Values mixed;          ///< [rows, hidden], the heads' outputs
    float* log_sum_exp;    ///< [batch, heads, seq]
    float* workspace;      ///< `workspace_elems`; not kept: all layers may share it
    Dropout dropout = {};  ///< of the probabilities with which a token looks at others
  };

  /// Parameters "prefix.c_attn.*" and "prefix.c_proj.*". `heads` divides `hidden`.
  CausalSelfAttention(World& world, std::string_view prefix, std::int64_t hidden,
                      std::int64_t heads);

  [[nodiscard]] std::vector<ParameterSpec> parameters() const;
  [[nodiscard]] std::int64_t workspace_elems(BatchShape shape, DType compute) const;

  /// y [rows, hidden].
  void forward(const Scope& scope, const Saved& saved, Values y, BatchShape shape) const;
  /// dy, dx [rows, hidden]; scratch 4 rows hidden.
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
