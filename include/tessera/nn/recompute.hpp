#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::nn {

/// What layers discard after forward and compute again for backward. It is a value and can be
/// copied freely. Choices are joined by `|`:
///
///   Recompute::block()                                            every layer whole
///   Recompute::gelu() | Recompute::layer_norm()                   two outputs of every layer
///   Recompute::every(4) | Recompute::gelu()                       every fourth layer whole, and
///                                                                 GELU's output of the others
///
/// It changes no bit of any result, but for `gelu` in 16 bits on CUDA: there a product applies GELU
/// before it rounds, and what is computed again comes from the rounded values, so that the gradient
/// of mlp.c_proj.weight reads activations that may differ by one rounding. All strategies still
/// have the same bits.
class Recompute {
 public:
  /// Makes the choice of nothing: all activations are kept.
  Recompute() = default;
  /// Returns the choice of nothing.
  [[nodiscard]] static Recompute none() { return {}; }

  /// Returns the choice of every layer. A layer that is recomputed whole keeps only its input, and
  /// runs its forward again, all but its last product.
  [[nodiscard]] static Recompute block() { return every(1); }
  /// Returns the choice of layers 0, k, 2k and so on. Throws ContractError unless k >= 1.
  [[nodiscard]] static Recompute every(std::int64_t k);
  /// Returns the choice of the layers for which `layer` returns true. It must return the same each
  /// time and on every rank. Throws ContractError if it is empty.
  [[nodiscard]] static Recompute chosen(std::function<bool(std::int64_t layer)> layer);

  /// Returns the choice of GELU's output: 4 * hidden values a row of every layer that is not
  /// recomputed whole, for one pass over them in backward.
  [[nodiscard]] static Recompute gelu();
  /// Returns the choice of the outputs of both layer norms: 2 * hidden values a row of every layer
  /// that is not recomputed whole, for one more forward of the norms.
  [[nodiscard]] static Recompute layer_norm();

  /// Returns what either chooses. Throws ContractError if both choose whole layers.
  [[nodiscard]] friend Recompute operator|(const Recompute& a, const Recompute& b) {
    return a.joined(b);
  }

  /// Returns whether `layer`, from 0, is recomputed whole.
  [[nodiscard]] bool applies_to(std::int64_t layer) const;
  /// Returns whether GELU's output of `layer`, from 0, is computed again, and not the whole layer.
  [[nodiscard]] bool gelu_of(std::int64_t layer) const { return gelu_ && !applies_to(layer); }
  /// Returns whether the norms' outputs of `layer`, from 0, are computed again, and not the whole
  /// layer.
  [[nodiscard]] bool layer_norms_of(std::int64_t layer) const {
    return layer_norm_ && !applies_to(layer);
  }
  /// Returns "none", or a list such as "every:3,gelu" of "block", "every:3", "chosen", "gelu" and
  /// "layer-norm".
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] bool chooses_layers() const { return every_ > 0 || chosen_; }
  [[nodiscard]] Recompute joined(const Recompute& other) const;

  std::int64_t every_ = 0;  // 0: none, unless chosen
  std::function<bool(std::int64_t)> chosen_;
  bool gelu_ = false;
  bool layer_norm_ = false;
};

}  // namespace tessera::nn
