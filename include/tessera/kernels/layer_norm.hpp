#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// The number that is added to a variance before its square root, as in GPT-2.
inline constexpr float kLayerNormEps = 1e-5F;

/// Arguments of layer_norm_forward. x and y have one dtype; weight and bias may have another.
struct LayerNormForward {
  ConstValues x;       ///< [rows, columns]
  ConstValues weight;  ///< [columns]
  ConstValues bias;    ///< [columns]
  Values y;            ///< [rows, columns], overwritten
  float* mean;         ///< [rows], overwritten: kept for backward
  /// [rows], 1 / sqrt(variance + kLayerNormEps), overwritten: kept for backward.
  float* inverse_std;
  std::int64_t rows;     ///< number of rows
  std::int64_t columns;  ///< elements of a row
};

/// Computes y = (x - mean) * inverse_std * weight + bias, row by row, with the biased variance.
///
/// Bits:   a row's sums are formed in a backend's own order, which depends on the row's length and
///         the dtypes only.
/// Errors: ContractError for a negative size, rows without columns, a null or fp64 array, or dtypes
///         that differ where they must not.
void layer_norm_forward(const LayerNormForward& args, Stream stream);

/// Arguments of layer_norm_backward. x, dy and dx have one dtype; dweight and dbias may have
/// another.
struct LayerNormBackward {
  ConstValues x;             ///< [rows, columns], as in forward
  ConstValues weight;        ///< [columns], as in forward
  const float* mean;         ///< [rows], from forward
  const float* inverse_std;  ///< [rows], from forward
  ConstValues dy;            ///< [rows, columns]
  Values dx;                 ///< [rows, columns], added to: it holds the residual's gradient
  Values dweight;            ///< [columns]; null: frozen, not computed
  Values dbias;              ///< [columns]; null: frozen, not computed
  std::int64_t rows;         ///< number of rows
  std::int64_t columns;      ///< elements of a row
  Write dweight_write = Write::add;  ///< whether dweight is added to or overwritten
  Write dbias_write = Write::add;    ///< whether dbias is added to or overwritten
};

/// Computes the gradients of layer_norm_forward.
///
/// Bits:   dx as in forward. dweight and dbias are sums over rows. On a CPU they have the order and
///         the roundings of bias_gradient. On CUDA they are formed in fp32, in an order that
///         depends on the sizes only, and rounded once. There 85 + rows / 256 additions follow each
///         other, so that the error is at most that many 2^-24 of the sum of the terms' magnitudes.
/// Memory: CUDA uses the stream's workspace.
/// Errors: those of layer_norm_forward.
void layer_norm_backward(const LayerNormBackward& args, Stream stream);

}  // namespace tessera::kernels
