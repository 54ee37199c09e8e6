#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/nn/decoder_config.hpp"

namespace tessera::nn {

/// The activations that layers discard after forward and compute again for backward. It is a value
/// and can be copied freely. Choices are joined by `|`:
///
///     Recompute::block()                                            every layer whole
///     Recompute::gelu() | Recompute::layer_norm()                   two outputs of every layer
///     Recompute::every(4) | Recompute::gelu()                       every fourth layer whole, and
///                                                                   GELU's output of the others
///     Recompute::swiglu() | Recompute::rms_norm()                   the same for a Llama
///
/// A decoder refuses a name of an activation or a norm that it does not have.
///
/// It changes no bit of a result, with one exception: `gelu` of the tanh form in 16 bits on CUDA.
/// There a product applies GELU before it rounds, while the recomputed output comes from rounded
/// values. The gradient of mlp.c_proj.weight then reads activations that may differ by one
/// rounding. All strategies still have the same bits.
class Recompute {
 public:
  /// Recomputes nothing: all activations are kept.
  Recompute() = default;
  /// Recomputes nothing: all activations are kept.
  [[nodiscard]] static Recompute none() { return {}; }

  /// Recomputes every layer whole. Such a layer keeps only its input, and backward runs its forward
  /// again, except the last product.
  [[nodiscard]] static Recompute block() { return every(1); }
  /// Recomputes layers 0, k, 2k and so on whole. Throws ContractError unless k >= 1.
  [[nodiscard]] static Recompute every(std::int64_t k);
  /// Recomputes whole the layers for which `layer` returns true. The function must return the same
  /// each time and on every rank. Throws ContractError if it is empty.
  [[nodiscard]] static Recompute chosen(std::function<bool(std::int64_t layer)> layer);

  /// Recomputes the output of GELU in layers that are not recomputed whole. It saves
  /// DecoderConfig::mlp_elems values per row and layer, and costs one pass over them in backward.
  [[nodiscard]] static Recompute gelu();
  /// Recomputes the product of gate and values (MLPKind::swiglu or geglu) in layers that are not
  /// recomputed whole. It saves DecoderConfig::mlp_elems values per row and layer, and costs one
  /// pass over twice as many in backward.
  [[nodiscard]] static Recompute swiglu();
  /// Recomputes the outputs of both layer norms in layers that are not recomputed whole. It saves
  /// 2 * hidden values per row and layer, and costs one more forward of the norms.
  [[nodiscard]] static Recompute layer_norm();
  /// Does the same for both RMSNorms.
  [[nodiscard]] static Recompute rms_norm();
  /// Returns gelu() or swiglu(), as a decoder of `config` needs it.
  [[nodiscard]] static Recompute activation(const DecoderConfig& config) {
    return config.gated() ? swiglu() : gelu();
  }
  /// Returns layer_norm() or rms_norm(), as a decoder of `config` needs it.
  [[nodiscard]] static Recompute norms(const DecoderConfig& config) {
    return config.norm == NormKind::layer_norm ? layer_norm() : rms_norm();
  }

  /// Recomputes what `a` or `b` recomputes. Throws ContractError if both choose whole layers.
  [[nodiscard]] friend Recompute operator|(const Recompute& a, const Recompute& b) {
    return a.joined(b);
  }

  /// Returns whether `layer`, from 0, is recomputed whole.
  [[nodiscard]] bool applies_to(std::int64_t layer) const;
  /// Returns whether the activation's output of `layer`, from 0, is recomputed, but not the whole
  /// layer.
  [[nodiscard]] bool activation_of(std::int64_t layer) const {
    return (gelu_ || swiglu_) && !applies_to(layer);
  }
  /// Returns whether the norms' outputs of `layer`, from 0, are recomputed, but not the whole
  /// layer.
  [[nodiscard]] bool norms_of(std::int64_t layer) const {
    return (layer_norm_ || rms_norm_) && !applies_to(layer);
  }
  /// Throws ConfigError if a decoder of `config` lacks an activation or a norm that is named.
  void validate(const DecoderConfig& config) const;
  /// Returns "none", or a list of "block", "every:3", "chosen", "gelu", "swiglu", "layer-norm" and
  /// "rms-norm", such as "every:3,gelu".
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] bool chooses_layers() const { return every_ > 0 || chosen_; }
  [[nodiscard]] Recompute joined(const Recompute& other) const;

  std::int64_t every_ = 0;  // 0: none, unless chosen
  std::function<bool(std::int64_t)> chosen_;
  bool gelu_ = false;
  bool swiglu_ = false;
  bool layer_norm_ = false;
  bool rms_norm_ = false;
};

}  // namespace tessera::nn
