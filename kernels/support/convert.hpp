#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"

namespace tessera::kernels {

/// Elements that loops over 16-bit arrays widen at a time: they fit into the first-level cache.
inline constexpr std::int64_t kStagedElems = 512;

/// to[i] = from[i], exactly, from bf16, fp16 or fp32. No overlap. Runs at once.
void widen(float* to, ConstValues from, std::int64_t elems) noexcept;

/// to[i] = from[i] in the dtype of `to`, rounded to nearest, ties to even. No overlap. Runs at
/// once.
void narrow(Values to, const float* from, std::int64_t elems) noexcept;

/// Up to kStagedElems elements of any dtype as floats: in place if they are fp32, else as a widened
/// copy.
class Staged {
 public:
  [[nodiscard]] const float* read(ConstValues values, std::int64_t elems) noexcept {
    if (values.dtype == DType::fp32) { return values.as<float>(); }
    widen(copy_, values, elems);
    return copy_;
  }
  /// The same for writing; `write_back` stores the copy's new values.
  [[nodiscard]] float* open(Values values, std::int64_t elems) noexcept {
    if (values.dtype == DType::fp32) { return values.as<float>(); }
    widen(copy_, values, elems);
    return copy_;
  }
  void write_back(Values values, std::int64_t elems) const noexcept {
    if (values.dtype != DType::fp32) { narrow(values, copy_, elems); }
  }

 private:
  alignas(64) float copy_[kStagedElems];
};

}  // namespace tessera::kernels
