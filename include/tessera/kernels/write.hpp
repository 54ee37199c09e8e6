#pragma once

#include <cstdint>

/// Kernels for layers, on CPUs and CUDA: tessera/kernels/kernels.hpp has the rules for all of them.
namespace tessera::kernels {

/// How a kernel writes its result to memory.
enum class Write : std::uint8_t {
  overwrite,  ///< replaces the old values without reading them
  add,        ///< adds to the old values
};

}  // namespace tessera::kernels
