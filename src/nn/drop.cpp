#include "nn/drop.hpp"

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
  kernels::dropout({.x = what.x,
                    .y = what.y,
                    .samples = what.shape.batch,
                    .sample_elems = what.shape.seq * what.columns,
                    .p = dropout.p,
                    .key = key_of(dropout, site)},
                   scope.stream());
}

}  // namespace tessera::nn
