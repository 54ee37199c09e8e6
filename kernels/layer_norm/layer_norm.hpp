#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

inline constexpr float kLayerNormEps = 1e-5F;  // GPT-2

struct LayerNormForward {
  const float* x;       ///< [rows, columns]
  const float* weight;  ///< [columns]
  const float* bias;    ///< [columns]
  float* y;             ///< [rows, columns]
  float* mean;          ///< [rows], kept for backward
  float* inverse_std;   ///< [rows], 1 / sqrt(variance + eps), kept for backward
  std::int64_t rows;
  std::int64_t columns;
};

/// y = (x - mean) * inverse_std * weight + bias, row by row; biased variance, eps 1e-5.
using LayerNormForwardKernel = void(const LayerNormForward& args, Stream stream);

struct LayerNormBackward {
  const float* x;
  const float* weight;
  const float* mean;
  const float* inverse_std;
  const float* dy;  ///< [rows, columns]
  float* dx;        ///< [rows, columns], added to (the residual's gradient is there)
  float* dweight;   ///< [columns], added to; null if frozen
  float* dbias;     ///< [columns], added to; null if frozen
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

}  // namespace tessera::kernels
