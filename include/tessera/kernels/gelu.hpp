#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Computes y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), element by element, in fp32 and
/// rounded once: the GELU of GPT-2. x and y have `elems` elements of one dtype: fp32, bf16 or fp16.
/// y may be x. Where a GELU follows a product, Epilogue::gelu of `matmul` is faster.
///
/// Bits:   depend on the element only; the exponential is the backend's own.
/// Errors: ContractError for a negative size, a null or fp64 array, or dtypes that differ.
void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream);

/// Computes dx = dy * gelu'(x), element by element; dx is overwritten and may be dy. All have one
/// dtype. Bits and errors are those of gelu_forward.
void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream);

}  // namespace tessera::kernels
