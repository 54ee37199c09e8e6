#pragma once

#include "tessera/kernels/bias.hpp"

namespace tessera::kernels {

using AddBiasKernel = void(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns,
                           Stream stream);
using BiasGradientKernel = void(ConstValues dy, Values dbias, std::int64_t rows,
                                std::int64_t columns, Write write, Stream stream);

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
