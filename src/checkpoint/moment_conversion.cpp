#include "checkpoint/moment_conversion.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/update/moment_code.hpp"
#include "tessera/base/moment_format.hpp"

namespace tessera::checkpoint {
namespace {

// Added so that a code rounds to nearest.
constexpr std::uint32_t kHalfWay = 0x7FFF;

template <class Code>
void dequantise(std::size_t lead, std::span<const std::uint8_t> codes,
                std::span<const float> scales, std::span<float> values) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    values[i] = Code::decode(codes[i], scales[(lead + i) / kMomentBlock]);
  }
}

template <class Code, class Kept>
void quantise(std::span<const float> values, std::span<std::uint8_t> codes, std::span<float> scales,
              const Kept& kept) {
  constexpr std::size_t block = kMomentBlock;
  for (std::size_t first = 0; first < values.size(); first += block) {
    const std::size_t end = std::min(first + block, values.size());
    std::uint32_t most = 0;
    for (std::size_t i = first; i < end; ++i) {
      most = std::max(most, Code::magnitude(kept(values[i])));
    }
    const float scale = Code::scale(most);
    if (!scales.empty()) { scales[first / block] = scale; }
    for (std::size_t i = first; i < end && !codes.empty(); ++i) {
      codes[i] =
          static_cast<std::uint8_t>(Code::encode(kept(values[i]), Code::inverse(scale), kHalfWay));
    }
  }
}

}  // namespace

void dequantise_moment(int moment, std::int64_t first, std::span<const std::uint8_t> codes,
                       std::span<const float> scales, std::span<float> values) {
  const auto lead = static_cast<std::size_t>(first);
  moment == 0 ? dequantise<kernels::FirstCode>(lead, codes, scales, values)
              : dequantise<kernels::SecondCode>(lead, codes, scales, values);
}

void quantise_moment(int moment, std::span<const float> values, std::span<std::uint8_t> codes,
                     std::span<float> scales) {
  if (moment == 0) {
    quantise<kernels::FirstCode>(values, codes, scales, [](float x) { return x; });
  } else {
    quantise<kernels::SecondCode>(values, codes, scales, [](float x) { return std::sqrt(x); });
  }
}

}  // namespace tessera::checkpoint
