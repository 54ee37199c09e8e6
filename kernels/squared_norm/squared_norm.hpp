#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t kSquaredNormLanes = 16;
inline constexpr std::int64_t kSquaredNormBlock = 4096;
inline constexpr std::int64_t kSquaredNormSpan = 64;  ///< blocks per span

/// An array of `elems` of fp32, bf16 or fp16, whose squares are added to *sum.
struct NormTerm {
  ConstValues x;
  std::int64_t elems;
  double* sum;
};

/// Adds the terms in order: *sum += x[0]^2 + x[1]^2 + ... in fp64, in a fixed order:
///
///   lane l of 16 adds the squares of elements l, l+16, l+32 ... in order, within blocks of 4096;
///   a block's lanes are added in order of l; the blocks of a span of 64 are added in order; the
///   spans' sums are added in order, onto *sum.
///
/// On CUDA this takes two launches for all terms, unless they exceed a launch's parameters or the
/// stream's workspace, of which each span takes 512 bytes.
///
/// Every backend gives the same bits. The result is finite iff every element is: squares of fp32 do
/// not overflow fp64.
using SquaredNormKernel = void(std::span<const NormTerm> terms, Stream stream);

/// Number of spans of `elems` elements.
[[nodiscard]] constexpr std::int64_t squared_norm_spans(std::int64_t elems) noexcept {
  constexpr std::int64_t span = kSquaredNormSpan * kSquaredNormBlock;
  return (elems + span - 1) / span;
}

/// sums[s] = the sum of span s of `x`. Added in order to *sum they give squared_norm's result. The
/// host uses this, since it receives the arrays in another order than the sum's.
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
