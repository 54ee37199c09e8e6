#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/base/view.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Computes y = a + b, element by element, in fp32 and rounded once. All have `elems` elements of
/// one dtype: fp32, bf16 or fp16. y may be a or b.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, a null or fp64 array, or dtypes that differ.
void add(ConstValues a, ConstValues b, Values y, std::int64_t elems, Stream stream);

/// Computes to += from, element by element, in fp32 and rounded once to the dtype of `to`. Each is
/// fp32, bf16 or fp16. They must not overlap.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, or a null or fp64 array.
void accumulate(Values to, ConstValues from, std::int64_t elems, Stream stream);

/// Computes to *= factor, element by element, in fp32 and rounded once. `to` is fp32, bf16 or fp16.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, or a null or fp64 array.
void scale(Values to, float factor, std::int64_t elems, Stream stream);

/// Copies `from` to `to`, converted to the dtype of `to`, between any two of fp32, bf16 and fp16.
/// Narrowing rounds to nearest, ties to even; NaN stays NaN, overflow becomes infinity. The views
/// must not overlap.
///
/// Bits:   the same on every backend, except those of a NaN.
/// Errors: ContractError for views of different lengths, and for a null or fp64 view.
void cast(View to, ConstView from, Stream stream);

}  // namespace tessera::kernels
