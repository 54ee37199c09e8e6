#include "kernels/support/convert.hpp"

#include <bit>
#include <cstring>

#include "tessera/base/half.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace tessera::kernels {
namespace {

// As bfloat16's own conversions, without a branch or a call, so that the compiler makes vectors.
void widen_bf16(float* __restrict to, const bfloat16* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) {
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i].bits) << 16U);
  }
}

void narrow_bf16(bfloat16* __restrict to, const float* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (bits >> 16U) | 0x40U;
    const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    to[i].bits = static_cast<std::uint16_t>(is_nan ? quiet : rounded);
  }
}

// Eight at a time where the processor converts them.
void widen_fp16(float* __restrict to, const float16* __restrict from, std::int64_t elems) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= elems; i += 8) {
    __m128i halves;
    std::memcpy(&halves, from + i, sizeof halves);
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < elems; ++i) { to[i] = from[i].to_float(); }
}

void narrow_fp16(float16* __restrict to, const float* __restrict from, std::int64_t elems) {
  std::int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= elems; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(static_cast<void*>(to + i), &halves, sizeof halves);
  }
#endif
  for (; i < elems; ++i) { to[i] = float16::from_float(from[i]); }
}

}  // namespace

void widen(float* to, ConstValues from, std::int64_t elems) noexcept {
  switch (from.dtype) {
    case DType::bf16:
      return widen_bf16(to, from.as<bfloat16>(), elems);
    case DType::fp16:
      return widen_fp16(to, from.as<float16>(), elems);
    default:
      if (elems > 0) {
        std::memcpy(to, from.data, static_cast<std::size_t>(elems) * sizeof(float));
      }
  }
}

void narrow(Values to, const float* from, std::int64_t elems) noexcept {
  switch (to.dtype) {
    case DType::bf16:
      return narrow_bf16(to.as<bfloat16>(), from, elems);
    case DType::fp16:
      return narrow_fp16(to.as<float16>(), from, elems);
    default:
      if (elems > 0) {
        std::memcpy(to.data, from, static_cast<std::size_t>(elems) * sizeof(float));
      }
  }
}

}  // namespace tessera::kernels
