#include "tessera/engine/init.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/philox.hpp"

namespace tessera::init {
namespace {

/// Four normal numbers from the four words of one counter.
std::array<float, 4> four_normals(std::uint64_t seed, std::uint32_t id, std::uint64_t block) {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), id, 0U},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  std::array<float, 4> out{};
  for (std::size_t pair = 0; pair < 2; ++pair) {
    // (0, 1]: the logarithm is finite.
    const double u = (static_cast<double>(words[2 * pair]) + 1.0) * 0x1p-32;
    const double angle =
        2.0 * std::numbers::pi * static_cast<double>(words[2 * pair + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    out[2 * pair] = static_cast<float>(radius * std::cos(angle));
    out[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return out;
}

}  // namespace

void fill_normal(std::uint64_t seed, std::uint32_t id, std::int64_t first, float stddev,
                 std::span<float> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto element = static_cast<std::uint64_t>(first) + done;
    const auto values = four_normals(seed, id, element / 4);
    for (std::size_t lane = element % 4; lane < 4 && done < out.size(); ++lane, ++done) {
      out[done] = stddev * values[lane];
    }
  }
}

Initializer normal(std::uint64_t seed, float stddev) {
  return [seed, stddev](const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
    fill_normal(seed, parameter.id, first, stddev, out);
  };
}

Initializer constant(float value) {
  return [value](const ParameterInfo&, std::int64_t, std::span<float> out) {
    std::ranges::fill(out, value);
  };
}

}  // namespace tessera::init
