#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// The function of the gate.
enum class Gate : std::uint8_t {
  silu,       ///< g / (1 + exp(-g)): SwiGLU
  gelu_tanh,  ///< the tanh form of GELU, as gelu_forward computes it: GeGLU
};

/// Arguments of glu_forward. All arrays have one dtype: fp32, bf16 or fp16.
///
/// `gate` and `up` are two matrices, or the halves of one product's output [rows, 2 columns]. In
/// that case `up` is gate.at(columns), and `row_elems` is 2 columns.
struct GLUForward {
  ConstValues gate;            ///< [rows, columns]
  ConstValues up;              ///< [rows, columns]
  Values y;                    ///< [rows, columns] without gaps, overwritten; must not overlap
  std::int64_t rows;           ///< number of rows
  std::int64_t columns;        ///< elements of a row of y
  std::int64_t row_elems = 0;  ///< elements from one row of gate and up to the next; 0: columns
  Gate function = Gate::silu;  ///< the function of the gate
};

/// Computes y = function(gate) * up (Shazeer 2020), in fp32 and rounded once.
///
/// Bits:   depend on the element only; the exponential is the backend's own.
/// Errors: ContractError for a negative size, a row shorter than its columns, a null or fp64 array,
///         or dtypes that differ.
void glu_forward(const GLUForward& args, Stream stream);

/// Arguments of glu_backward. All arrays have one dtype: fp32, bf16 or fp16.
struct GLUBackward {
  ConstValues gate;            ///< [rows, columns], as in forward
  ConstValues up;              ///< [rows, columns], as in forward
  ConstValues dy;              ///< [rows, columns] without gaps
  Values dgate;                ///< [rows, columns], overwritten; may be gate
  Values dup;                  ///< [rows, columns], overwritten; may be up
  std::int64_t rows;           ///< number of rows
  std::int64_t columns;        ///< elements of a row of dy
  std::int64_t row_elems = 0;  ///< from one row of gate, up, dgate, dup to the next; 0: columns
  Gate function = Gate::silu;  ///< as in forward
};

/// Computes the gradients of glu_forward:
///
///     dup = dy * function(gate)        dgate = dy * up * function'(gate)
///
/// Bits and errors are those of glu_forward.
void glu_backward(const GLUBackward& args, Stream stream);

}  // namespace tessera::kernels
