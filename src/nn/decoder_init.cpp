#include <cmath>
#include <string_view>

#include "tessera/nn/decoder.hpp"

namespace tessera::nn {
namespace {

constexpr float kStddev = 0.02F;

// Every block adds two projections to the residual stream: with this scale, its variance does not
// grow with depth (Radford et al. 2019).
float stddev_of(std::string_view name, std::int64_t layers) {
  if (!name.ends_with("c_proj.weight")) { return kStddev; }
  return kStddev / std::sqrt(2.0F * static_cast<float>(layers));
}

}  // namespace

Initializer Decoder::initializer(std::uint64_t seed) const {
  using init::Distribution;
  return init::Drawn{seed, [layers = config().layers](const ParameterInfo& parameter) {
                       const std::string_view name = parameter.name;
                       if (name.ends_with(".bias")) { return Distribution{}; }
                       if (name.starts_with("ln_") || name.ends_with("_norm.weight")) {
                         return Distribution{Distribution::Kind::constant, 1.0F};
                       }
                       return Distribution{Distribution::Kind::normal, stddev_of(name, layers)};
                     }};
}

}  // namespace tessera::nn
