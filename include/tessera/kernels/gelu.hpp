#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// The forms of GELU.
enum class GELU : std::uint8_t {
  tanh,   ///< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the GELU of GPT-2
  exact,  ///< 0.5 x (1 + erf(x / sqrt(2)))
};

/// Computes y = gelu(x), element by element, in fp32 and rounded once. x and y have `elems`
/// elements of one dtype: fp32, bf16 or fp16. y may be x. Where the tanh form follows a product,
/// Epilogue::gelu of `matmul` is faster.
///
/// Bits:   depend on the element only; the exponential is the backend's own.
/// Errors: ContractError for a negative size, a null or fp64 array, or dtypes that differ.
void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream,
                  GELU form = GELU::tanh);

/// Computes dx = dy * gelu'(x), element by element; dx is overwritten and may be dy. All have one
/// dtype. Bits and errors are those of gelu_forward.
void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream,
                   GELU form = GELU::tanh);

}  // namespace tessera::kernels
