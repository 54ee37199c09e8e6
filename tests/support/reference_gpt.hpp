#pragma once

#include <Eigen/Dense>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "tessera/nn/decoder_config.hpp"
#include "tessera/nn/tensors.hpp"

// GPT-2 in float64, written for readability: attention matrices are kept, nothing is fused or
// shared with the library. It defines correctness for nn; finite differences check it.
namespace tessera::reference {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Tensors by Hugging Face name; a vector is one row.
using Tensors = std::map<std::string, Matrix>;
using Tokens = std::span<const std::int32_t>;

/// Gradients of a layer's input and of its two parameters.
struct LayerGradients {
  Matrix x;
  Matrix weight;
  Matrix bias;
};

[[nodiscard]] Matrix linear(const Matrix& x, const Matrix& weight, const Matrix& bias);
[[nodiscard]] LayerGradients linear_backward(const Matrix& x, const Matrix& weight,
                                             const Matrix& dy);

[[nodiscard]] Matrix layer_norm(const Matrix& x, const Matrix& weight, const Matrix& bias);
[[nodiscard]] LayerGradients layer_norm_backward(const Matrix& x, const Matrix& weight,
                                                 const Matrix& dy);

/// In its tanh form, or by the error function (MLPKind::gelu).
[[nodiscard]] Matrix gelu(const Matrix& x, nn::MLPKind kind = nn::MLPKind::gelu_tanh);
[[nodiscard]] Matrix gelu_backward(const Matrix& x, const Matrix& dy,
                                   nn::MLPKind kind = nn::MLPKind::gelu_tanh);

/// Maps queries, keys and values side by side [rows, 3 hidden] to [rows, hidden].
[[nodiscard]] Matrix attention(const Matrix& qkv, nn::BatchShape shape, std::int64_t heads);
[[nodiscard]] Matrix attention_backward(const Matrix& qkv, const Matrix& dy, nn::BatchShape shape,
                                        std::int64_t heads);

/// Mean over the rows.
[[nodiscard]] double cross_entropy(const Matrix& logits, Tokens targets);
[[nodiscard]] Matrix cross_entropy_backward(const Matrix& logits, Tokens targets);

/// Sublayers with parameters "prefix.c_attn.weight" and so on; backward adds the parameters'
/// gradients to `gradients` and returns that of x.
struct SubLayer {
  const Tensors& weights;
  std::string prefix;
  nn::BatchShape shape;
  std::int64_t heads;
  nn::MLPKind kind = nn::MLPKind::gelu_tanh;
};
[[nodiscard]] Matrix self_attention(const SubLayer& at, const Matrix& x);
[[nodiscard]] Matrix self_attention_backward(const SubLayer& at, const Matrix& x, const Matrix& dy,
                                             Tensors& gradients);
[[nodiscard]] Matrix mlp(const SubLayer& at, const Matrix& x);
[[nodiscard]] Matrix mlp_backward(const SubLayer& at, const Matrix& x, const Matrix& dy,
                                  Tensors& gradients);
/// "prefix.ln_1.*", "prefix.attn.*", "prefix.ln_2.*", "prefix.mlp.*".
[[nodiscard]] Matrix block(const SubLayer& at, const Matrix& x);
[[nodiscard]] Matrix block_backward(const SubLayer& at, const Matrix& x, const Matrix& dy,
                                    Tensors& gradients);

/// The whole model on inputs of whole sequences.
[[nodiscard]] Matrix gpt_logits(const nn::DecoderConfig& config, const Tensors& weights,
                                Tokens inputs);
[[nodiscard]] double gpt_loss(const nn::DecoderConfig& config, const Tensors& weights,
                              Tokens inputs, Tokens targets);
[[nodiscard]] Tensors gpt_gradients(const nn::DecoderConfig& config, const Tensors& weights,
                                    Tokens inputs, Tokens targets);

/// Zeros of the shapes of all parameters, by name.
[[nodiscard]] Tensors gpt_zeros(const nn::DecoderConfig& config);

}  // namespace tessera::reference
