#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How thoroughly a model checks its trainer for mistakes, beyond those that it always refuses.
/// Each level includes the level before it, and none changes a bit of a result (docs/checks.md).
enum class Checks : std::uint8_t {
  off,     ///< No further checks, at no cost.
  strict,  ///< A micro-batch is refused with ContractError if a unit has fewer backward scopes than
           ///< forward scopes: its missing gradients would count as zeros. This reads no memory.
  memory,  ///< Tensors used after their scope, gradients written beyond their end, and the first
           ///< NaN are found and named by unit, parameter and scope. Scopes wait for the device
           ///< and, in backward, for their reduction: use it to find mistakes, not to train.
};

/// Returns "off", "strict" or "memory".
[[nodiscard]] std::string_view to_string(Checks checks) noexcept;

}  // namespace tessera
