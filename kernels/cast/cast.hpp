#pragma once

#include "tessera/base/view.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// to[i] = from[i] in the dtype of `to`, between any two of fp32, bf16 and fp16. Narrowing rounds
/// to nearest, ties to even; NaN stays NaN, overflow gives infinity. `to.elems == from.elems`; no
/// overlap. Every backend gives the same bits, except those of a NaN. ContractError for fp64.
using CastKernel = void(View to, ConstView from, Stream stream);

namespace reference {
CastKernel cast;
}
namespace cpu {
CastKernel cast;
}
namespace cuda {
CastKernel cast;
}

}  // namespace tessera::kernels
