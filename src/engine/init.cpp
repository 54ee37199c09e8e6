#include "tessera/engine/init.hpp"

#include <algorithm>

#include "kernels/normal/normal.hpp"

namespace tessera::init {

void fill_normal(std::uint64_t seed, std::uint32_t id, std::int64_t first, float stddev,
                 std::span<float> out) {
  kernels::make_normal({seed, id}, first, stddev, out);
}

void Drawn::operator()(const ParameterInfo& parameter, std::int64_t first,
                       std::span<float> out) const {
  const Distribution from = distribution(parameter);
  if (from.kind == Distribution::Kind::normal) {
    fill_normal(seed, parameter.id, first, from.number, out);
  } else {
    std::ranges::fill(out, from.number);
  }
}

Initializer normal(std::uint64_t seed, float stddev) {
  return Drawn{seed, [stddev](const ParameterInfo&) {
                 return Distribution{Distribution::Kind::normal, stddev};
               }};
}

Initializer constant(float value) {
  return [value](const ParameterInfo&, std::int64_t, std::span<float> out) {
    std::ranges::fill(out, value);
  };
}

}  // namespace tessera::init
