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

/// y = (x - mean) * inverse_std * weight + bias, row by row; biased variance, eps 1e-5.
using LayerNormForwardKernel = void(const LayerNormForward& args, Stream stream);

/// x, dy and dx are of one dtype, the gradients of one.
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
