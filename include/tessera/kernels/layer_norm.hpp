#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// The number that is added to a variance before its square root, as in GPT-2.
inline constexpr float kLayerNormEps = 1e-5F;

/// Arguments of layer_norm_forward. x and y have one dtype, weight and bias one.
struct LayerNormForward {
  ConstValues x;       ///< [rows, columns]
  ConstValues weight;  ///< [columns]
  ConstValues bias;    ///< [columns]
  Values y;            ///< [rows, columns], overwritten
  float* mean;         ///< [rows], overwritten: kept for backward
  float*
      inverse_std;  ///< [rows], 1 / sqrt(variance + kLayerNormEps), overwritten: kept for backward
  std::int64_t rows;
  std::int64_t columns;
};

/// Computes y = (x - mean) * inverse_std * weight + bias, row by row, with the biased variance.
///
/// Bits:   a row's sums are formed in an order that depends on its length and the dtypes alone,
///         another one on each backend.
/// Errors: ContractError for a negative size, rows without columns, a null or fp64 array, or dtypes
///         that differ where they must not.
void layer_norm_forward(const LayerNormForward& args, Stream stream);

/// Arguments of layer_norm_backward. x, dy and dx have one dtype, dweight and dbias one.
struct LayerNormBackward {
  ConstValues x;             ///< [rows, columns], as in forward
  ConstValues weight;        ///< [columns], as in forward
  const float* mean;         ///< [rows], from forward
  const float* inverse_std;  ///< [rows], from forward
  ConstValues dy;            ///< [rows, columns]
  Values dx;                 ///< [rows, columns], added to: the residual's gradient is there
  Values dweight;            ///< [columns]; null: frozen, not computed
  Values dbias;              ///< [columns]; null: frozen, not computed
  std::int64_t rows;
  std::int64_t columns;
  Write dweight_write = Write::add;
  Write dbias_write = Write::add;
};

/// Computes the gradients of layer_norm_forward.
///
/// Bits:   dx as forward; dweight and dbias are sums over rows. On a CPU they have the order and
///         the roundings of bias_gradient. On CUDA they are formed in fp32, in an order that
///         depends on the sizes alone, and rounded once: 85 + rows / 256 additions follow each
///         other, and that many 2^-24 of the sum of the terms' magnitudes bound the error.
/// Memory: CUDA uses the stream's workspace.
/// Errors: those of layer_norm_forward.
void layer_norm_backward(const LayerNormBackward& args, Stream stream);

}  // namespace tessera::kernels
