#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::nn {

/// The activations that layers discard after forward and compute again for backward. It is a value
/// and can be copied freely. Choices are joined by `|`:
///
///     Recompute::block()                                            every layer whole
///     Recompute::gelu() | Recompute::layer_norm()                   two outputs of every layer
///     Recompute::every(4) | Recompute::gelu()                       every fourth layer whole, and
///                                                                   GELU's output of the others
///
/// It changes no bit of a result, with one exception: `gelu` in 16 bits on CUDA. There a product
/// applies GELU before it rounds, while the recomputed output comes from rounded values. The
/// gradient of mlp.c_proj.weight then reads activations that may differ by one rounding. All
/// strategies still have the same bits.
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

  /// Recomputes the output of GELU in layers that are not recomputed whole. It saves 4 * hidden
  /// values per row and layer, and costs one pass over them in backward.
  [[nodiscard]] static Recompute gelu();
  /// Recomputes the outputs of both layer norms in layers that are not recomputed whole. It saves
  /// 2 * hidden values per row and layer, and costs one more forward of the norms.
  [[nodiscard]] static Recompute layer_norm();

  /// Recomputes what `a` or `b` recomputes. Throws ContractError if both choose whole layers.
  [[nodiscard]] friend Recompute operator|(const Recompute& a, const Recompute& b) {
    return a.joined(b);
  }

  /// Returns whether `layer`, from 0, is recomputed whole.
  [[nodiscard]] bool applies_to(std::int64_t layer) const;
  /// Returns whether GELU's output of `layer`, from 0, is recomputed, but not the whole layer.
  [[nodiscard]] bool gelu_of(std::int64_t layer) const { return gelu_ && !applies_to(layer); }
  /// Returns whether the norms' outputs of `layer`, from 0, are recomputed, but not the whole
  /// layer.
  [[nodiscard]] bool layer_norms_of(std::int64_t layer) const {
    return layer_norm_ && !applies_to(layer);
  }
  /// Returns "none", or a list of "block", "every:3", "chosen", "gelu" and "layer-norm", such as
  /// "every:3,gelu".
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
