#pragma once

#include "tessera/kernels/quantised.hpp"

namespace tessera::kernels {

using NF4QuantiseKernel = void(const NF4Quantise& args, Stream stream);
using NF4QuantiseAbsmaxKernel = void(const NF4QuantiseAbsmax& args, Stream stream);
using NF4DequantiseKernel = void(const NF4Dequantise& args, Stream stream);
using Int8QuantiseKernel = void(const Int8Quantise& args, Stream stream);
using Int8DequantiseKernel = void(const Int8Dequantise& args, Stream stream);

namespace reference {
NF4QuantiseKernel nf4_quantise;
NF4QuantiseAbsmaxKernel nf4_quantise_absmax;
NF4DequantiseKernel nf4_dequantise;
Int8QuantiseKernel int8_quantise;
Int8DequantiseKernel int8_dequantise;
}  // namespace reference
namespace cpu {
NF4QuantiseKernel nf4_quantise;
NF4QuantiseAbsmaxKernel nf4_quantise_absmax;
NF4DequantiseKernel nf4_dequantise;
Int8QuantiseKernel int8_quantise;
Int8DequantiseKernel int8_dequantise;
}  // namespace cpu
namespace cuda {
NF4QuantiseKernel nf4_quantise;
NF4QuantiseAbsmaxKernel nf4_quantise_absmax;
NF4DequantiseKernel nf4_dequantise;
Int8QuantiseKernel int8_quantise;
Int8DequantiseKernel int8_dequantise;
}  // namespace cuda

}  // namespace tessera::kernels
