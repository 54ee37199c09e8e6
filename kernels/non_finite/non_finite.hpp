#pragma once

#include "tessera/base/view.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// *found <- place, if *found is 0 and an element of `x` (any dtype) is an infinity or NaN. After
/// several searches *found is the place of the first hit.
using FindNonFiniteKernel = void(ConstView x, double place, double* found, Stream stream);

namespace reference {
FindNonFiniteKernel find_non_finite;
}
namespace cpu {
FindNonFiniteKernel find_non_finite;
}
namespace cuda {
FindNonFiniteKernel find_non_finite;
}

}  // namespace tessera::kernels
