#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y = a + b, element by element. All arrays have one dtype. y may be a or b.
using AddKernel = void(ConstValues a, ConstValues b, Values y, std::int64_t elems, Stream stream);

namespace cpu {
AddKernel add;
}
namespace cuda {
AddKernel add;
}

}  // namespace tessera::kernels
