#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/dtype.hpp"
#include "tessera/comm/batch.hpp"

namespace tessera {

/// to[i] = ((from[0][i] + from[1][i]) + from[2][i]) + ..., or their maximum (NaN if one is), in
/// fp32 (fp64 for fp64), rounded to `dtype` once. `to` may be one of `from`; no other overlap.
void reduce_in_order(void* to, std::span<const void* const> from, std::int64_t elems, DType dtype,
                     ReduceOp op) noexcept;

}  // namespace tessera
