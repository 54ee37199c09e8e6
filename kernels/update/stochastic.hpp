#pragma once

#include <array>
#include <cstdint>

#include "kernels/update/update_run.hpp"
#include "tessera/base/philox.hpp"

namespace tessera::kernels {

/// The array of an update that is rounded. Each has its own random bits. Moments of 8 bits share
/// a word: the first has the low half, the second the high one.
enum class RoundedArray : std::uint8_t { parameter = 1, first = 2, second = 3, quantised = 4 };

/// The random bits of one array in one update. Element i of the whole parameter takes
///
///   word i % 4 of philox4x32({low 32 bits of i / 4, high bits of i / 4 | array << 24,
///                             parameter id, updates}, seed)
///
/// and its magnitude is rounded up if word / 2^32 is less than its distance from the lower
/// neighbour, as a fraction of the gap between its two neighbours, else down. Exact values,
/// infinities and NaN do not change; beyond the largest finite value the upper neighbour is
/// infinity. The expected result is the value, up to the 32 bits of a word.
struct StochasticKey {
  std::uint64_t seed = 0;
  std::uint32_t parameter_id = 0;
  std::uint32_t updates = 0;
  RoundedArray array = RoundedArray::parameter;

  [[nodiscard]] static constexpr StochasticKey of(const UpdateRun& run, std::int64_t updates,
                                                  RoundedArray array) noexcept {
    return {run.seed, run.parameter_id, static_cast<std::uint32_t>(updates), array};
  }
  /// The counter of the four elements from 4 * `group` on.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> counter(std::uint64_t group) const noexcept {
    const auto tag = static_cast<std::uint32_t>(array) << 24U;
    return {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32U) | tag,
            parameter_id, updates};
  }
  [[nodiscard]] constexpr std::array<std::uint32_t, 2> key() const noexcept {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)};
  }
  [[nodiscard]] constexpr std::uint32_t word(std::int64_t element) const noexcept {
    const auto i = static_cast<std::uint64_t>(element);
    return philox4x32(counter(i / 4), key())[i % 4];
  }
};

/// to[i] = from[i] in the dtype of `to` (bf16, fp16), rounded stochastically; from[0] is element
/// `first` of its parameter.
using NarrowStochastic = void(Values to, const float* from, std::int64_t elems,
                              const StochasticKey& key, std::int64_t first);

namespace reference {
NarrowStochastic narrow_stochastic;
}
namespace cpu {
NarrowStochastic narrow_stochastic;
}

}  // namespace tessera::kernels
