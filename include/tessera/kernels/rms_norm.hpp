#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// Arguments of rms_norm_forward. x and y have one dtype; weight may have another.
struct RMSNormForward {
  ConstValues x;         ///< [rows, columns]
  ConstValues weight;    ///< [columns]
  Values y;              ///< [rows, columns], overwritten; may be x
  float* inverse_rms;    ///< [rows], 1 / sqrt(mean(x^2) + eps), overwritten: kept for backward
  std::int64_t rows;     ///< number of rows
  std::int64_t columns;  ///< elements of a row
  float eps = 1e-5F;     ///< at least 0; Llama 2 and 3 use 1e-5, Llama 1 uses 1e-6
  /// Rows that lie side by side, such as the heads of a token; a divisor of `rows`. Row r =
  /// g * group + i begins at element g * group_elems + i * columns of its array.
  std::int64_t group = 1;
  std::int64_t x_group_elems = 0;  ///< from one group of x to the next; 0: group * columns
  std::int64_t y_group_elems = 0;  ///< from one group of y to the next; 0: group * columns
};

/// Computes y = x * inverse_rms * weight, row by row (Zhang and Sennrich 2019).
///
/// Bits:   a row's sums are formed in a backend's own order, which depends on the row's length and
///         the dtypes only.
/// Errors: ContractError for a negative size or eps, rows without columns, groups that do not
///         divide the rows or overlap, a null or fp64 array, or an x and y of different dtypes.
void rms_norm_forward(const RMSNormForward& args, Stream stream);

/// Arguments of rms_norm_backward. x, dy and dx have one dtype.
struct RMSNormBackward {
  ConstValues x;             ///< [rows, columns], as in forward
  ConstValues weight;        ///< [columns], as in forward
  const float* inverse_rms;  ///< [rows], from forward
  ConstValues dy;            ///< [rows, columns]
  Values dx;                 ///< [rows, columns], added to (dx_write): the residual's gradient
  Values dweight;            ///< [columns], added to; null: frozen, not computed
  std::int64_t rows;         ///< number of rows
  std::int64_t columns;      ///< elements of a row
  std::int64_t group = 1;    ///< as in forward
  std::int64_t x_group_elems = 0;   ///< from one group of x to the next; 0: group * columns
  std::int64_t dy_group_elems = 0;  ///< from one group of dy to the next; 0: group * columns
  std::int64_t dx_group_elems = 0;  ///< from one group of dx to the next; 0: group * columns
  Write dx_write = Write::add;      ///< overwrite: dx is written, and may be dy
};

/// Adds the gradients of rms_norm_forward: with n = x * inverse_rms and dn = dy * weight,
///
///     dx += inverse_rms * (dn - n * mean(dn * n))        dweight += sum over rows of dy * n
///
/// or overwrites dx (dx_write).
///
/// Bits:   dx as in forward; dweight is summed over rows as by layer_norm_backward.
/// Memory: CUDA uses the stream's workspace.
/// Errors: those of rms_norm_forward.
void rms_norm_backward(const RMSNormBackward& args, Stream stream);

}  // namespace tessera::kernels
