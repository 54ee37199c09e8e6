#include <cmath>

#include "tools/measure/loops.hpp"

namespace tessera::bench::baseline {
namespace {

using Register = float __attribute__((vector_size(32)));

#include "tools/measure/loops.inc"

}  // namespace

Loops loops() {
  return {"baseline", triad, adamw_traffic, plain_adamw, peak, 2.0 * kPeakChains * 8};
}

}  // namespace tessera::bench::baseline
