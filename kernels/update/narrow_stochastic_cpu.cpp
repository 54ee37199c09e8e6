#include <algorithm>

#include "kernels/support/philox_words.hpp"
#include "kernels/update/round_stochastic.hpp"
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
