#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t kSquaredNormLanes = 16;
inline constexpr std::int64_t kSquaredNormBlock = 4096;
inline constexpr std::int64_t kSquaredNormSpan = 64;  ///< blocks

/// An array whose squares are added onto *sum: `elems` of fp32, bf16 or fp16.
struct NormTerm {
  ConstValues x;
  std::int64_t elems;
  double* sum;
};

/// Adds each term in turn: *sum += x[0]^2 + x[1]^2 + ... in fp64, in a fixed order:
///
///   lane l of 16 adds the squares of elements l, l+16, l+32 ... in order, within blocks of 4096;
///   a block's lanes are added in order of l; the blocks of a span of 64 are added in order; the
///   spans' sums are added in order, onto *sum.
///
/// On CUDA two launches for all terms, unless they are more than fit a launch's parameters or the
/// stream's workspace, of which 512 bytes a span are taken.
///
/// Same bits on every backend. Finite iff every element is: squares of fp32 do not overflow fp64.
using SquaredNormKernel = void(std::span<const NormTerm> terms, Stream stream);

/// The spans of `elems` elements.
[[nodiscard]] constexpr std::int64_t squared_norm_spans(std::int64_t elems) noexcept {
  constexpr std::int64_t span = kSquaredNormSpan * kSquaredNormBlock;
  return (elems + span - 1) / span;
}

/// sums[s] = the sum of span s of `x`. Added in order onto *sum they give squared_norm's result.
/// The host uses it, since it gets the arrays in another order than that of the sum.
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
