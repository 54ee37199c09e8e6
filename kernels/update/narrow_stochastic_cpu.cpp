#include <algorithm>

#include "kernels/update/round_stochastic.hpp"
#include "kernels/update/stochastic.hpp"
#include "kernels/update/stochastic_words.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::cpu {

void narrow_stochastic(Values to, const float* from, std::int64_t elems, const StochasticKey& key,
                       std::int64_t first) {
  alignas(64) std::uint32_t words[kPhiloxWords];
  std::int64_t done = 0;
  while (done < elems) {
    const auto at = static_cast<std::uint64_t>(first + done);
    const auto skip = static_cast<std::int64_t>(at % 4);
    stochastic_words(key, at / 4, words);
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
