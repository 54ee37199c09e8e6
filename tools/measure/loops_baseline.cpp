#include <cmath>

#include "bench/support/loops.hpp"

namespace tessera::bench::baseline {
namespace {

using Register = float __attribute__((vector_size(32)));

#include "bench/support/loops.inc"

}  // namespace

Loops loops() {
  return {"baseline", triad, adamw_traffic, plain_adamw, peak, 2.0 * kPeakChains * 8};
}

}  // namespace tessera::bench::baseline
