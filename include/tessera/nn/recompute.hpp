#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::nn {

/// The layers that keep only their input, and run their forward again for their backward. It is a
/// value and is copied freely. It changes no bit of any result.
class Recompute {
 public:
  /// Chooses no layer: all activations are kept.
  Recompute() = default;
  /// Returns the choice of no layer.
  [[nodiscard]] static Recompute none() { return {}; }
  /// Returns the choice of every layer.
  [[nodiscard]] static Recompute block() { return every(1); }
  /// Returns the choice of layers 0, k, 2k and so on. Throws ContractError unless k >= 1.
  [[nodiscard]] static Recompute every(std::int64_t k);
  /// Returns the choice of the layers for which `layer` returns true. It must return the same each
  /// time and on every rank. Throws ContractError if it is empty.
  [[nodiscard]] static Recompute chosen(std::function<bool(std::int64_t layer)> layer);

  /// Returns whether `layer`, from 0, is recomputed.
  [[nodiscard]] bool applies_to(std::int64_t layer) const;
  /// Returns "none", "block", a text such as "every:3", or "chosen".
  [[nodiscard]] std::string describe() const;

 private:
  std::int64_t every_ = 0;  // 0: none, unless chosen
  std::function<bool(std::int64_t)> chosen_;
};

}  // namespace tessera::nn
