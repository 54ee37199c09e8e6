#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y[r, c] += bias[c], rows x columns row-major.
using AddBiasKernel = void(float* y, const float* bias, std::int64_t rows, std::int64_t columns,
                           Stream stream);

/// dbias[c] += sum over r of dy[r, c], in an order that depends on the sizes alone.
using BiasGradientKernel = void(const float* dy, float* dbias, std::int64_t rows,
                                std::int64_t columns, Stream stream);

namespace reference {
AddBiasKernel add_bias;
BiasGradientKernel bias_gradient;
}  // namespace reference
namespace cpu {
AddBiasKernel add_bias;
BiasGradientKernel bias_gradient;
}  // namespace cpu

}  // namespace tessera::kernels
