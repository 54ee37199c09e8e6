#pragma once

#include <cstdint>

namespace tessera::kernels {

/// How a kernel writes its result to memory.
enum class Write : std::uint8_t {
  overwrite,  ///< replaces the old values without reading them
  add,        ///< adds to the old values
};

}  // namespace tessera::kernels
