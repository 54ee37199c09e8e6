#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y[r, c] += bias[c], rows x columns row-major; each of its own dtype.
using AddBiasKernel = void(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns,
                           Stream stream);

/// dbias[c] += sum over r of dy[r, c], in an order that depends on the sizes alone, another one on
/// each backend. On a CPU, in a dbias of 16 bits every 32 rows' sum is rounded. On CUDA the sum is
/// rounded once, and was formed in fp32 by no more than 41 + rows / 1024 additions one after
/// another: that many 2^-24 of the sum of |dy[r, c]| bound its error.
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
