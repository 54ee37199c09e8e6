#pragma once

#include <cstdint>

#include "kernels/support/philox_words.hpp"
#include "kernels/update/stochastic.hpp"

namespace tessera::kernels::cpu {

/// words[i] = key.word(4 * group + i), for i in [0, kPhiloxWords).
[[gnu::always_inline]] inline void stochastic_words(const StochasticKey& key, std::uint64_t group,
                                                    std::uint32_t* words) noexcept {
  // A counter's group is its two lower words: the array's tag is above every number of a group.
  const auto counter = key.counter(group);
  philox_words({key.key(), counter[2], counter[3]}, counter[0] | std::uint64_t{counter[1]} << 32U,
               words);
}

}  // namespace tessera::kernels::cpu
