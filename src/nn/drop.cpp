#include "nn/drop.hpp"

#include <algorithm>

namespace tessera::nn {

kernels::DropoutKey key_of(const Dropout& dropout, DropSite site) {
  return {.seed = dropout.seed,
          .step = dropout.step,
          .site = static_cast<std::uint32_t>(dropout.layer) * kDropSites +
                  static_cast<std::uint32_t>(site),
          .first_sample = dropout.first_sample};
}

void drop(const Scope& scope, const Dropout& dropout, DropSite site, const Dropped& what) {
  if (!dropout.on()) { return; }
  const Range own = what.own.value_or(Range{0, what.shape.rows()});
  const std::int64_t seq = what.shape.seq;
  // Rows that end within a sample, whole samples, rows that begin one: each a run of equal parts.
  for (std::int64_t row = own.first; row < own.end();) {
    const std::int64_t in_sample = row % seq;
    const std::int64_t samples = in_sample == 0 ? (own.end() - row) / seq : 0;
    const std::int64_t rows = samples > 0 ? seq : std::min(seq - in_sample, own.end() - row);
    kernels::DropoutKey key = key_of(dropout, site);
    key.first_sample += row / seq;
    const std::int64_t at = (row - own.first) * what.columns;
    kernels::dropout({.x = what.x.at(at),
                      .y = what.y.at(at),
                      .samples = std::max<std::int64_t>(samples, 1),
                      .sample_elems = rows * what.columns,
                      .p = dropout.p,
                      .key = key,
                      .first_elem = in_sample * what.columns},
                     scope.stream());
    row += rows * std::max<std::int64_t>(samples, 1);
  }
}

}  // namespace tessera::nn
