#pragma once

#include <cstdint>

#include "kernels/update/update_run.hpp"

namespace tessera::kernels::cpu {

/// The moments of one block as floats, from codes and back to them.
class CodedBlock {
 public:
  /// `block` is a run of at most kMomentBlock elements with moments of 8 bits.
  explicit CodedBlock(const UpdateRun& block) noexcept;

  [[nodiscard]] float* first() noexcept { return first_; }
  /// Null if the rule has one moment.
  [[nodiscard]] float* second() noexcept { return has_second_ ? second_ : nullptr; }
  /// Makes codes of what the floats have become.
  void store(const UpdateRun& block, std::int64_t updates) noexcept;

 private:
  // What is beyond the elements of a last block stays zero.
  alignas(64) float first_[kMomentBlock];
  alignas(64) float second_[kMomentBlock];
  bool has_second_;
};

}  // namespace tessera::kernels::cpu
