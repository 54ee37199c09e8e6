#include "tessera/engine/init.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/normal/normal.hpp"
#include "tessera/base/error.hpp"

namespace tessera::init {
namespace {

void require_stddev(float stddev) {
  expects(std::isfinite(stddev) && stddev >= 0.0F,
          "init: `stddev` of a normal distribution must be finite, 0 or more");
}

}  // namespace

void fill_normal(std::uint64_t seed, std::uint32_t id, std::int64_t first, float stddev,
                 std::span<float> out) {
  require_stddev(stddev);
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
  require_stddev(stddev);
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
