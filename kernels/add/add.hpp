#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y = a + b, element by element. y may be a or b.
using AddKernel = void(const float* a, const float* b, float* y, std::int64_t elems, Stream stream);

namespace cpu {
AddKernel add;
}

}  // namespace tessera::kernels
