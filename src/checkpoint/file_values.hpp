#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"

namespace tessera::checkpoint {

/// The dtype of numbers that files call "F32", "BF16" or "F16"; empty for any other name.
[[nodiscard]] std::optional<DType> dtype_named(std::string_view name) noexcept;

/// Bytes of an fp32, bf16 or fp16 number in a file.
[[nodiscard]] std::size_t file_bytes_of(DType dtype) noexcept;

/// Reads `values.size()` numbers of `dtype` with `read`, and widens them in the memory of `values`,
/// exactly.
void read_values(DType dtype, std::span<float> values,
                 const std::function<void(std::span<std::byte> raw)>& read);
/// Widens `raw`, numbers of `dtype`, to `values`, exactly.
void widen_values(DType dtype, std::span<const std::byte> raw, std::span<float> values);
/// The bytes of `values` in `dtype`, rounded to nearest, ties to even.
void narrow_values(DType dtype, std::span<const float> values, std::vector<std::byte>& bytes);

}  // namespace tessera::checkpoint
