#include <algorithm>
#include <bit>

#include "kernels/support/philox_words.hpp"
#include "kernels/update/stochastic.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::cpu {
namespace {

// A counter's group is its two lower words: the array's tag lies above any number of a group.
PhiloxStream stream_of(const StochasticKey& key) noexcept {
  const auto counter = key.counter(0);
  return {key.key(), counter[2], counter[3]};
}

std::uint64_t group_of(const StochasticKey& key, std::uint64_t group) noexcept {
  const auto counter = key.counter(group);
  return counter[0] | std::uint64_t{counter[1]} << 32U;
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
  alignas(64) std::uint32_t words[kPhiloxWords];
  const PhiloxStream stream = stream_of(key);
  std::int64_t done = 0;
  while (done < elems) {
    const auto at = static_cast<std::uint64_t>(first + done);
    const auto skip = static_cast<std::int64_t>(at % 4);
    philox_words(stream, group_of(key, at / 4), words);
    const std::int64_t count = std::min(kPhiloxWords - skip, elems - done);
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
