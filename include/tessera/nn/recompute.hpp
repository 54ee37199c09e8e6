#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::nn {

/// Which layers forget what their forward computed and run it again for their backward: they keep
/// their input alone. A value: copied freely; changes no bit of any result.
class Recompute {
 public:
  /// No layer: all is kept.
  Recompute() = default;
  [[nodiscard]] static Recompute none() { return {}; }
  /// Every layer.
  [[nodiscard]] static Recompute block() { return every(1); }
  /// Layers 0, k, 2k ... ContractError unless k >= 1.
  [[nodiscard]] static Recompute every(std::int64_t k);
  /// Those for which `layer` says so, each time it is asked, the same on every rank.
  [[nodiscard]] static Recompute chosen(std::function<bool(std::int64_t layer)> layer);

  [[nodiscard]] bool applies_to(std::int64_t layer) const;
  /// "none", "block", "every:3", "chosen".
  [[nodiscard]] std::string describe() const;

 private:
  std::int64_t every_ = 0;  // 0: none, unless chosen
  std::function<bool(std::int64_t)> chosen_;
};

}  // namespace tessera::nn
