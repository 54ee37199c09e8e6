#pragma once

#include <algorithm>
#include <limits>

#include "kernels/support/exp.hpp"

namespace tessera::kernels {

/// The largest of x[0 .. elems). NaNs are ignored here; the exponentials reveal them.
template <class T>
float row_max(const T* x, std::int64_t elems) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  Vec most = splat(lowest);
  for_lanes(elems, [&](std::int64_t i, auto lanes) {
    most = max(lanes.mask(lanes.read(x + i), lowest), most);
  });
  return max_of(most);
}

/// y[i] = exp(scale * x[i] - shift) for i in [0, elems); returns their sum. y may be x.
/// Lanes are added in fp32 within blocks of 1024, the blocks in fp64.
template <class X, class Y>
double exp_row(const X* x, Y* y, std::int64_t elems, float scale, float shift) {
  constexpr std::int64_t block = 1024;
  double total = 0.0;
  for (std::int64_t first = 0; first < elems; first += block) {
    Vec sum{};
    for_lanes(std::min(block, elems - first), [&](std::int64_t i, auto lanes) {
      const Vec e = exp(fma(lanes.read(x + first + i), splat(scale), splat(-shift)));
      lanes.write(y + first + i, e);
      sum += lanes.mask(e, 0.0F);
    });
    total += sum_of(sum);
  }
  return total;
}

/// x[i] *= factor.
template <class T>
void scale_row(T* x, std::int64_t elems, float factor) {
  for_lanes(elems,
            [&](std::int64_t i, auto lanes) { lanes.write(x + i, lanes.read(x + i) * factor); });
}

}  // namespace tessera::kernels
