#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Element types of tensors.
enum class DType : std::uint8_t {
  fp32,  ///< IEEE binary32, 4 bytes
  bf16,  ///< bfloat16, 2 bytes: the range of fp32 with 8 significant bits
  fp16,  ///< IEEE binary16, 2 bytes
  fp64,  ///< IEEE binary64, 8 bytes; used for sums and references only
};

/// Returns the bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp64:
      return 8;
    case DType::fp32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
  }
  return 0;
}

/// Returns "fp32", "bf16", "fp16" or "fp64".
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;

/// The inverse of to_string. Throws ConfigError that lists the known names if `name` is not one.
[[nodiscard]] DType parse_dtype(std::string_view name);

}  // namespace tessera
