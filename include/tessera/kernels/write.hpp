#pragma once

#include <cstdint>

namespace tessera::kernels {

/// What a kernel does with what its result's memory holds before.
enum class Write : std::uint8_t {
  overwrite,  ///< the old values are not read
  add,        ///< the result is added to them
};

}  // namespace tessera::kernels
