#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t kSquaredNormLanes = 16;
inline constexpr std::int64_t kSquaredNormBlock = 4096;
inline constexpr std::int64_t kSquaredNormSpan = 64;  ///< blocks

/// *sum += x[0]^2 + x[1]^2 + ... in fp64, in a fixed order; x is fp32, bf16 or fp16:
///
///   lane l of 16 adds the squares of elements l, l+16, l+32 ... in order, within blocks of 4096;
///   a block's lanes are added in order of l; the blocks of a span of 64 are added in order; the
///   spans' sums are added in order, onto *sum.
///
/// On CUDA in the workspace of the stream, of which it takes 8 bytes a block and a span.
///
/// Same bits on every backend. Finite iff every element is: squares of fp32 do not overflow fp64.
using SquaredNormKernel = void(ConstValues x, std::int64_t elems, double* sum, Stream stream);

/// The spans of `elems` elements.
[[nodiscard]] constexpr std::int64_t squared_norm_spans(std::int64_t elems) noexcept {
  constexpr std::int64_t span = kSquaredNormSpan * kSquaredNormBlock;
  return (elems + span - 1) / span;
}

/// sums[s] = what span s of `x` adds up to: added in order onto *sum they are what squared_norm
/// adds. For the host, which has the arrays in another order than they are to be added in.
using SpanSumsKernel = void(ConstValues x, std::int64_t elems, double* sums, Stream stream);

namespace reference {
SquaredNormKernel squared_norm;
}
namespace cpu {
SquaredNormKernel squared_norm;
SpanSumsKernel span_sums;
}  // namespace cpu
namespace cuda {
SquaredNormKernel squared_norm;
}

}  // namespace tessera::kernels
