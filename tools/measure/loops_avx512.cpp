#include <cmath>

#include "tools/measure/loops.hpp"

namespace tessera::bench::avx512 {
namespace {

using Register = float __attribute__((vector_size(64)));

#include "tools/measure/loops.inc"

}  // namespace

Loops loops() {
  return {"avx512", triad, adamw_traffic, plain_adamw, peak, 2.0 * kPeakChains * 16};
}

}  // namespace tessera::bench::avx512
