#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y[r, c] += bias[c], rows x columns row-major; each of its own dtype.
using AddBiasKernel = void(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns,
                           Stream stream);

/// dbias[c] += sum over r of dy[r, c], in an order that depends on the sizes alone. In a dbias of
/// 16 bits every 32 rows' sum is rounded.
using BiasGradientKernel = void(ConstValues dy, Values dbias, std::int64_t rows,
                                std::int64_t columns, Stream stream);

namespace reference {
AddBiasKernel add_bias;
BiasGradientKernel bias_gradient;
}  // namespace reference
namespace cpu {
AddBiasKernel add_bias;
BiasGradientKernel bias_gradient;
}  // namespace cpu
namespace cuda {
AddBiasKernel add_bias;
BiasGradientKernel bias_gradient;
}  // namespace cuda

}  // namespace tessera::kernels
