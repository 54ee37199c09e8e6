#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// Adds `bias` [columns] to every row of `y` [rows, columns], in place. Each is fp32, bf16 or fp16.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, or a null or fp64 array.
void add_bias(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns, Stream stream);

/// Adds the sum of the rows of `dy` [rows, columns] to `dbias` [columns], or overwrites `dbias`
/// with it: the gradient of a bias, or of any other vector that every row shares. Each is fp32,
/// bf16 or fp16.
///
/// Bits:   sums are formed in fp32 in a backend's own order, which depends on the sizes only. A CPU
///         rounds a 16-bit dbias after every 32 rows, CUDA once. On CUDA 41 + rows / 1024 additions
///         follow each other, so that the error is at most that many 2^-24 of the sum of |dy|.
/// Memory: CUDA uses the stream's workspace.
/// Errors: ContractError for a negative size, or a null or fp64 array.
void bias_gradient(ConstValues dy, Values dbias, std::int64_t rows, std::int64_t columns,
                   Write write, Stream stream);
/// Adds the sum of the rows of `dy` [rows, columns] to `dbias` [columns], as the function above
/// with Write::add.
inline void bias_gradient(ConstValues dy, Values dbias, std::int64_t rows, std::int64_t columns,
                          Stream stream) {
  bias_gradient(dy, dbias, rows, columns, Write::add, stream);
}

}  // namespace tessera::kernels
