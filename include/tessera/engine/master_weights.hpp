#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How the fp32 master weights of 16-bit parameters are kept. Training has the same bits with
/// either.
enum class MasterWeights : std::uint8_t {
  fp32,       ///< whole, beside the parameters: 4 bytes each
  remainder,  ///< the lower 16 bits of each, which a bf16 parameter completes: 2 bytes
};

/// "fp32", "remainder".
[[nodiscard]] std::string_view to_string(MasterWeights kind) noexcept;

/// The inverse of to_string. ConfigError that lists the known names if `name` is not one.
[[nodiscard]] MasterWeights parse_master_weights(std::string_view name);

}  // namespace tessera
