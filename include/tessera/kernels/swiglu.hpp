#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of swiglu_forward. All arrays have one dtype: fp32, bf16 or fp16.
///
/// `gate` and `up` are two matrices, or the halves of one product's output [rows, 2 columns]. In
/// that case `up` is gate.at(columns), and `row_elems` is 2 columns.
struct SwiGLUForward {
  ConstValues gate;            ///< [rows, columns]
  ConstValues up;              ///< [rows, columns]
  Values y;                    ///< [rows, columns] without gaps, overwritten; must not overlap
  std::int64_t rows;           ///< number of rows
  std::int64_t columns;        ///< elements of a row of y
  std::int64_t row_elems = 0;  ///< elements from one row of gate and up to the next; 0: columns
};

/// Computes y = silu(gate) * up, where silu(g) = g / (1 + exp(-g)) (Shazeer 2020), computed in fp32
/// and rounded once.
///
/// Bits:   depend on the element only; the exponential is the backend's own.
/// Errors: ContractError for a negative size, a row shorter than its columns, a null or fp64 array,
///         or dtypes that differ.
void swiglu_forward(const SwiGLUForward& args, Stream stream);

/// Arguments of swiglu_backward. All arrays have one dtype: fp32, bf16 or fp16.
struct SwiGLUBackward {
  ConstValues gate;            ///< [rows, columns], as in forward
  ConstValues up;              ///< [rows, columns], as in forward
  ConstValues dy;              ///< [rows, columns] without gaps
  Values dgate;                ///< [rows, columns], overwritten; may be gate
  Values dup;                  ///< [rows, columns], overwritten; may be up
  std::int64_t rows;           ///< number of rows
  std::int64_t columns;        ///< elements of a row of dy
  std::int64_t row_elems = 0;  ///< from one row of gate, up, dgate, dup to the next; 0: columns
};

/// Computes the gradients of swiglu_forward: with s = 1 / (1 + exp(-gate)),
///
///     dup = dy * gate * s        dgate = dy * up * s * (1 + gate * (1 - s))
///
/// Bits and errors are those of swiglu_forward.
void swiglu_backward(const SwiGLUBackward& args, Stream stream);

}  // namespace tessera::kernels
