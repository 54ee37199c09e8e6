#pragma once

#include <cstdint>

#include "kernels/update/update_run.hpp"

namespace tessera::kernels::cpu {

/// Quantised moments of one block as floats: dequantised on construction, quantised by `store`.
class QuantisedBlock {
 public:
  /// `block` is a run of at most kMomentBlock elements with quantised moments.
  explicit QuantisedBlock(const UpdateRun& block) noexcept;

  [[nodiscard]] float* first() noexcept { return first_; }
  /// Null if the rule has one moment.
  [[nodiscard]] float* second() noexcept { return has_second_ ? second_ : nullptr; }
  /// Quantises the new values of the floats.
  void store(const UpdateRun& block, std::int64_t updates) noexcept;

 private:
  // Elements beyond the end of a last block stay zero.
  alignas(64) float first_[kMomentBlock];
  alignas(64) float second_[kMomentBlock];
  bool has_second_;
};

}  // namespace tessera::kernels::cpu
