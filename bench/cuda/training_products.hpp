#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/matmul/matmul.hpp"
#include "tessera/nn/decoder_config.hpp"

namespace tessera::bench {

/// A product of a GPT's training step: the members of a kernels::MatMul except its matrices.
struct TrainingProduct {
  std::string name;  ///< "c_attn forward"
  kernels::MatMul like;
  DType result = DType::bf16;  ///< of C; A and B are bf16
  bool bias = false;
  bool residual = false;
  bool bias_gradient = false;  ///< whether the sums of B's columns are requested

  /// "65536 x 2304 x 768": m x n x k
  [[nodiscard]] std::string shape() const;
  /// The bare product.
  [[nodiscard]] TrainingProduct plain() const;
  /// Elements of the three matrices, including the gaps between their rows.
  [[nodiscard]] std::int64_t a_elems() const;
  [[nodiscard]] std::int64_t b_elems() const { return like.k * like.n; }
  [[nodiscard]] std::int64_t c_elems() const { return like.m * like.c_row_elems(); }
};

/// Every kind of product in a step of `batch` sequences on CUDA in bf16 with fp32 gradients: for
/// each weight y = x W, dx = dy W^T and dW += x^T dy, with the operations that the layers request
/// in the same call; dW of a layer with a bias without its sums too.
[[nodiscard]] std::vector<TrainingProduct> training_products(const nn::DecoderConfig& model,
                                                             std::int64_t batch);

}  // namespace tessera::bench
