#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/dtype.hpp"
#include "tessera/base/reduce_op.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// The most sources of one call.
inline constexpr std::size_t kMostCombined = 1024;

/// to[i] = ((from[0][i] + from[1][i]) + from[2][i]) + ..., or their maximum (NaN if one is), in
/// fp32 (fp64 for fp64), rounded to `dtype` once. Any dtype. `to` may be one of `from`; no other
/// overlap. `from` itself, 1 to kMostCombined addresses, has been read on return.
///
/// Every backend gives the same bits, except those of a NaN.
using CombineKernel = void(void* to, std::span<const void* const> from, std::int64_t elems,
                           DType dtype, ReduceOp op, Stream stream);

/// The same on the host, computed at once by the calling thread: for a task with a stream of its
/// own.
void reduce_in_order(void* to, std::span<const void* const> from, std::int64_t elems, DType dtype,
                     ReduceOp op) noexcept;

namespace cpu {
CombineKernel combine;
}
namespace cuda {
CombineKernel combine;
}

}  // namespace tessera::kernels
