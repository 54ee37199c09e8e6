#include "kernels/update/quantised_block_cpu.hpp"

#include <cmath>
#include <cstring>

#include "kernels/update/moment_code.hpp"
#include "kernels/update/stochastic_words.hpp"

namespace tessera::kernels::cpu {
namespace {

// All loops are over whole blocks, so that the compiler knows their length.
template <class Code>
void decode(float* __restrict to, const QuantisedMoment& from, std::int64_t elems) noexcept {
  alignas(64) std::uint8_t codes[kMomentBlock] = {};
  std::memcpy(codes, from.values, static_cast<std::size_t>(elems));
  const float scale = *from.scales;
  for (std::int64_t i = 0; i < kMomentBlock; ++i) { to[i] = Code::decode(codes[i], scale); }
}

template <class Code, unsigned Shift>
void encode(const QuantisedMoment& to, const float* __restrict from, std::int64_t elems,
            const std::uint32_t* __restrict words) noexcept {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < kMomentBlock; ++i) {
    largest = std::max(largest, Code::magnitude(from[i]));
  }
  const float scale = Code::scale(largest);
  const float inverse = Code::inverse(scale);
  alignas(64) std::uint8_t codes[kMomentBlock];
  for (std::int64_t i = 0; i < kMomentBlock; ++i) {
    const std::uint32_t random = (words[i] >> Shift) & 0xFFFFU;
    codes[i] = static_cast<std::uint8_t>(Code::encode(from[i], inverse, random));
  }
  *to.scales = scale;
  std::memcpy(to.values, codes, static_cast<std::size_t>(elems));
}

}  // namespace

QuantisedBlock::QuantisedBlock(const UpdateRun& block) noexcept
    : has_second_{static_cast<bool>(block.second_quantised)} {
  decode<FirstCode>(first_, block.first_quantised, block.elems);
  if (has_second_) { decode<SecondCode>(second_, block.second_quantised, block.elems); }
}

void QuantisedBlock::store(const UpdateRun& block, std::int64_t updates) noexcept {
  alignas(64) std::uint32_t words[kMomentBlock];
  const StochasticKey key = StochasticKey::of(block, updates, RoundedArray::quantised);
  const auto group = static_cast<std::uint64_t>(block.first_in_parameter) / 4;
  for (std::int64_t i = 0; i < kMomentBlock; i += kPhiloxWords) {
    stochastic_words(key, group + static_cast<std::uint64_t>(i) / 4, words + i);
  }
  encode<FirstCode, 0>(block.first_quantised, first_, block.elems, words);
  if (!has_second_) { return; }
  for (float& value : second_) { value = std::sqrt(value); }
  encode<SecondCode, 16>(block.second_quantised, second_, block.elems, words);
}

}  // namespace tessera::kernels::cpu
