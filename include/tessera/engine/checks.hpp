#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// What a model looks for in its trainer while it trains, beyond what it must. Each level has those
/// before it, and none changes a bit of a result (docs/checks.md).
enum class Checks : std::uint8_t {
  off,
  strict,  ///< A unit whose forward scopes in a micro-batch have not as many backward scopes is
           ///< refused; its gradient would count as zeros. Costs no pass over memory.
  memory,  ///< What a trainer does to memory that is not its own is found and named by unit,
           ///< parameter and scope: tensors read or written after their scope, gradients written
           ///< beyond their end, the first NaN. Scopes wait for the device and, in backward, for
           ///< their reduction: for finding mistakes, not for training.
};

/// "off", "strict", "memory".
[[nodiscard]] std::string_view to_string(Checks checks) noexcept;

}  // namespace tessera
