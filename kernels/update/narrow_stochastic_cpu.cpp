#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/support/vec.hpp"
#include "kernels/update/stochastic.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::cpu {
namespace {

// Four counters side by side, each word in the low half of a 64-bit lane; what a product leaves in
// the high half is never read.
using Words = std::uint64_t __attribute__((vector_size(32)));
constexpr std::uint64_t kLow = 0xFFFFFFFF;

// Of the low halves.
[[gnu::always_inline]] inline Words multiply(Words a, std::uint64_t b) noexcept {
#if TESSERA_KERNELS_AVX2
  return reinterpret_cast<Words>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a),
                                                  _mm256_set1_epi64x(static_cast<long long>(b))));
#else
  return (a & kLow) * b;
#endif
}

// Sets of four that go through the rounds together, so that one multiplies while another waits.
constexpr std::uint64_t kSets = 4;
constexpr std::int64_t kWords = 16 * kSets;

/// The words of the elements from 4 * `group` on: philox4x32 of 4 * kSets counters at once.
void random_words(const StochasticKey& key, std::uint64_t group, std::uint32_t* words) {
  const auto first = key.counter(group);
  Words c[kSets][4] = {};
  for (std::uint64_t s = 0; s < kSets; ++s) {
    // A counter's group is its two lower words, and a carry between them is a carry.
    const Words groups = (group + 4 * s) + Words{0, 1, 2, 3};
    c[s][0] = groups;
    c[s][1] = (groups >> 32U) | (first[1] & 0xFF000000U);
    c[s][2] += first[2];
    c[s][3] += first[3];
  }
  auto [k0, k1] = key.key();
  for (int round = 0; round < 10; ++round) {
    for (Words(&set)[4] : c) {
      const Words product0 = multiply(set[0], 0xD2511F53);
      const Words product1 = multiply(set[2], 0xCD9E8D57);
      set[0] = (product1 >> 32U) ^ set[1] ^ std::uint64_t{k0};
      set[1] = product1;
      set[2] = (product0 >> 32U) ^ set[3] ^ std::uint64_t{k1};
      set[3] = product0;
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (std::uint64_t s = 0; s < kSets; ++s) {
    const Words front = (c[s][0] & kLow) | (c[s][1] << 32U);
    const Words back = (c[s][2] & kLow) | (c[s][3] << 32U);
    for (std::uint64_t lane = 0; lane < 4; ++lane) {
      const std::uint64_t pair[2] = {front[lane], back[lane]};
      std::memcpy(words + 16 * s + 4 * lane, pair, sizeof pair);
    }
  }
}

// The lowest 16 bits are the part of the gap; adding 65535 - r carries exactly if r is less.
std::uint16_t round_bf16(float value, std::uint32_t word) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t rounded = (bits + (~word >> 16U)) >> 16U;
  const std::uint32_t special = (bits >> 16U) | (magnitude > 0x7F800000U ? 0x40U : 0U);
  return static_cast<std::uint16_t>(magnitude >= 0x7F800000U ? special : rounded);
}

std::uint16_t round_fp16(float value, std::uint32_t word) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  constexpr std::uint32_t first_normal = 0x38800000;    // 2^-14
  constexpr std::uint32_t first_infinity = 0x47800000;  // 2^16
  if (magnitude >= first_infinity) { return float16::from_float(value).bits; }
  if (magnitude >= first_normal) {
    constexpr std::uint32_t exponent_gap = 112U << 23U;  // the biases: 127 - 15
    const std::uint32_t rounded = (magnitude - exponent_gap + (~word >> 19U)) >> 13U;
    return static_cast<std::uint16_t>(sign | rounded);
  }
  // Subnormal: a count of 2^-24, below 1024. Its whole part and the rest are exact.
  const float count = std::bit_cast<float>(magnitude) * 0x1p24F;
  const auto whole = static_cast<std::uint32_t>(count);
  const double part = static_cast<double>(count) - whole;
  const bool up = static_cast<double>(word) * 0x1p-32 < part;
  return static_cast<std::uint16_t>(sign | (whole + (up ? 1U : 0U)));
}

}  // namespace

void narrow_stochastic(Values to, const float* from, std::int64_t elems, const StochasticKey& key,
                       std::int64_t first) {
  alignas(64) std::uint32_t words[kWords];
  std::int64_t done = 0;
  while (done < elems) {
    const auto at = static_cast<std::uint64_t>(first + done);
    const auto skip = static_cast<std::int64_t>(at % 4);
    random_words(key, at / 4, words);
    const std::int64_t count = std::min(kWords - skip, elems - done);
    const float* const in = from + done;
    const std::uint32_t* const random = words + skip;
    if (to.dtype == DType::bf16) {
      bfloat16* const out = to.as<bfloat16>() + done;
      for (std::int64_t i = 0; i < count; ++i) { out[i].bits = round_bf16(in[i], random[i]); }
    } else {
      float16* const out = to.as<float16>() + done;
      for (std::int64_t i = 0; i < count; ++i) { out[i].bits = round_fp16(in[i], random[i]); }
    }
    done += count;
  }
}

}  // namespace tessera::kernels::cpu
