#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/kernels/rotary.hpp"

namespace tessera::nn {

/// The norms of a decoder.
enum class NormKind : std::uint8_t {
  layer_norm,  ///< with a weight and a bias
  rms_norm,    ///< with a weight
};

/// How a decoder tells the positions of tokens.
enum class PositionKind : std::uint8_t {
  learned,  ///< a table of positions, added to the tokens' vectors
  rotary,   ///< queries and keys are rotated (kernels::rotary_forward)
};

/// What is between the products of an MLP.
enum class MLPKind : std::uint8_t {
  gelu_tanh,  ///< the tanh form of GELU
  gelu,       ///< GELU by the error function
  swiglu,     ///< silu(gate) * up, where gate and up are the halves of the first product
  geglu,      ///< gelu_tanh(gate) * up
};

/// The sizes and the parts of a decoder. The defaults are gpt-nano, a small GPT-2.
struct DecoderConfig {
  std::int64_t layers = 4;    ///< the number of blocks
  std::int64_t hidden = 128;  ///< the length of a token's vector
  std::int64_t heads = 4;     ///< the query heads of each attention
  std::int64_t vocab = 256;   ///< the number of tokens
  std::int64_t seq = 128;  ///< the length of every sequence; with learned positions, their number

  /// The heads of keys and values, a divisor of `heads`; 0: as many as `heads`.
  std::int64_t kv_heads = 0;
  /// The number of values of one head; 0: hidden / heads, which must then divide.
  std::int64_t head_elems = 0;
  /// The number of values between the products of an MLP; 0: 4 * hidden.
  std::int64_t wide = 0;

  NormKind norm = NormKind::layer_norm;  ///< of all norms but those of heads
  float norm_eps = 1e-5F;                ///< added to the variance; layer norms have 1e-5
  bool head_norms = false;  ///< whether an RMSNorm over each head's values precedes rotation

  PositionKind positions = PositionKind::learned;  ///< how positions are told
  double rotary_base = 10'000.0;                   ///< the base of the rotation's angles
  /// The values of each head that are rotated, its first ones, an even number; 0: all.
  std::int64_t rotary_elems = 0;
  kernels::RotaryPairs rotary_pairs = kernels::RotaryPairs::halves;  ///< which values are a pair
  kernels::RotaryScaling rotary_scaling = {};  ///< Llama 3's change of the angles; default: none

  MLPKind mlp = MLPKind::gelu_tanh;  ///< what is between the products of an MLP
  bool qkv_bias = true;          ///< whether the product for queries, keys and values has biases
  bool output_bias = true;       ///< whether the attention's last product has
  bool mlp_bias = true;          ///< whether the products of MLPs have
  float attention_scale = 0.0F;  ///< of the scores; 0: 1 / sqrt(head_size())
  std::int64_t window = 0;       ///< a token sees this many tokens at most; 0: all before it
  std::int64_t first_window_layer = 0;  ///< layers before this one have no window
  bool tied_head = true;                ///< whether the head multiplies by the table of tokens

  /// Returns the sizes and parts of a model by its name: "gpt2", "llama3-8b", "qwen3-0.6b" and
  /// others. Throws ConfigError that lists the names if `name` is not one.
  [[nodiscard]] static DecoderConfig preset(std::string_view name);
  /// Returns the names that `preset` takes.
  [[nodiscard]] static const std::vector<std::string_view>& preset_names();

  /// Throws ConfigError that says what to change unless every size is at least 1 and small enough
  /// for 63-bit arithmetic, and the parts fit each other.
  void validate() const;

  /// Returns the number of values of one head.
  [[nodiscard]] std::int64_t head_size() const noexcept {
    return head_elems > 0 ? head_elems : hidden / heads;
  }
  /// Returns the number of heads of keys and of values.
  [[nodiscard]] std::int64_t key_heads() const noexcept { return kv_heads > 0 ? kv_heads : heads; }
  /// Returns the number of values between the products of an MLP.
  [[nodiscard]] std::int64_t mlp_elems() const noexcept { return wide > 0 ? wide : 4 * hidden; }
  /// Returns the number of values of each head that are rotated; 0 without rotary positions.
  [[nodiscard]] std::int64_t rotated_elems() const noexcept {
    if (positions != PositionKind::rotary) { return 0; }
    return rotary_elems > 0 ? rotary_elems : head_size();
  }
  /// Returns the window of `layer`, from 0; 0: none.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const noexcept {
    return layer >= first_window_layer ? window : 0;
  }
  /// Returns whether the first product of an MLP makes a gate and its values.
  [[nodiscard]] bool gated() const noexcept {
    return mlp == MLPKind::swiglu || mlp == MLPKind::geglu;
  }
  /// Returns the number of elements from one row of logits to the next: `vocab` rounded up to a
  /// multiple of 64. Products on GPUs are fast if their rows start at multiples of 16 bytes; those
  /// of 50,257 logits do not.
  [[nodiscard]] std::int64_t logits_row_elems() const noexcept { return (vocab + 63) / 64 * 64; }
  /// Returns the number of distinct parameter elements, a tied head counted once. For a GPT-2:
  ///
  ///     (vocab + seq) hidden + layers (12 hidden^2 + 13 hidden) + 2 hidden
  [[nodiscard]] std::int64_t parameter_elems() const noexcept;

  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;

 private:
  void validate_parts() const;
  void validate_rotation() const;
};

}  // namespace tessera::nn
