#include <algorithm>
#include <cmath>
#include <string_view>

#include "tessera/nn/gpt.hpp"

namespace tessera::nn {
namespace {

constexpr float kStddev = 0.02F;

// Every block adds two projections to the residual stream: scaled so, its variance does not grow
// with depth (Radford et al. 2019).
float stddev_of(std::string_view name, std::int64_t layers) {
  if (!name.ends_with("c_proj.weight")) { return kStddev; }
  return kStddev / std::sqrt(2.0F * static_cast<float>(layers));
}

}  // namespace

Initializer GPT::initializer(std::uint64_t seed) const {
  return [seed, layers = config().layers](const ParameterInfo& parameter, std::int64_t first,
                                          std::span<float> out) {
    const std::string_view name = parameter.name;
    if (name.ends_with(".bias")) {
      std::ranges::fill(out, 0.0F);
    } else if (name.starts_with("ln_")) {
      std::ranges::fill(out, 1.0F);
    } else {
      init::fill_normal(seed, parameter.id, first, stddev_of(name, layers), out);
    }
  };
}

}  // namespace tessera::nn
