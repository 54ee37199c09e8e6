#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How the fp32 master weights of 16-bit parameters are kept. Both give the same bits.
enum class MasterWeights : std::uint8_t {
  fp32,       ///< Each master weight is kept whole beside its parameter, in 4 bytes.
  remainder,  ///< Its lower 16 bits are kept, in 2 bytes: the bf16 parameter has the upper half.
};

/// Returns "fp32" or "remainder".
[[nodiscard]] std::string_view to_string(MasterWeights kind) noexcept;

/// The inverse of to_string. Throws ConfigError that lists the names if `name` is not one.
[[nodiscard]] MasterWeights parse_master_weights(std::string_view name);

}  // namespace tessera
