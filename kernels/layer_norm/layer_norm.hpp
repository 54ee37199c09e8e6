#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

inline constexpr float kLayerNormEps = 1e-5F;  // GPT-2

/// x and y are of one dtype, weight and bias of one.
struct LayerNormForward {
  ConstValues x;       ///< [rows, columns]
  ConstValues weight;  ///< [columns]
  ConstValues bias;    ///< [columns]
  Values y;            ///< [rows, columns]
  float* mean;         ///< [rows], kept for backward
  float* inverse_std;  ///< [rows], 1 / sqrt(variance + eps), kept for backward
  std::int64_t rows;
  std::int64_t columns;
};

/// y = (x - mean) * inverse_std * weight + bias, row by row; biased variance, eps 1e-5. The sums of
/// a row are formed in an order that depends on its length and the dtypes alone, another one on
/// each backend. On CUDA no more additions follow each other in fp32 than 32 or columns / 512, the
/// larger; what they leave is added in fp64.
using LayerNormForwardKernel = void(const LayerNormForward& args, Stream stream);

/// x, dy and dx are of one dtype, the gradients of one. The gradients of weight and bias are sums
/// over rows, in orders and with roundings as BiasGradientKernel says.
struct LayerNormBackward {
  ConstValues x;
  ConstValues weight;
  const float* mean;
  const float* inverse_std;
  ConstValues dy;  ///< [rows, columns]
  Values dx;       ///< [rows, columns], added to (the residual's gradient is there)
  Values dweight;  ///< [columns], added to; null if frozen
  Values dbias;    ///< [columns], added to; null if frozen
  std::int64_t rows;
  std::int64_t columns;
};

using LayerNormBackwardKernel = void(const LayerNormBackward& args, Stream stream);

namespace reference {
LayerNormForwardKernel layer_norm_forward;
LayerNormBackwardKernel layer_norm_backward;
}  // namespace reference
namespace cpu {
LayerNormForwardKernel layer_norm_forward;
LayerNormBackwardKernel layer_norm_backward;
}  // namespace cpu
namespace cuda {
LayerNormForwardKernel layer_norm_forward;
LayerNormBackwardKernel layer_norm_backward;
}  // namespace cuda

}  // namespace tessera::kernels
