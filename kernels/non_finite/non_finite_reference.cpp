#include <cmath>

#include "kernels/non_finite/non_finite.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::reference {
namespace {

double value(ConstView x, std::int64_t i) {
  switch (x.dtype) {
    case DType::bf16:
      return static_cast<const bfloat16*>(x.data)[i].to_float();
    case DType::fp16:
      return static_cast<const float16*>(x.data)[i].to_float();
    case DType::fp64:
      return static_cast<const double*>(x.data)[i];
    case DType::fp32:
      break;
  }
  return static_cast<const float*>(x.data)[i];
}

}  // namespace

void find_non_finite(ConstView x, double place, double* found, Stream) {
  for (std::int64_t i = 0; i < x.elems; ++i) {
    if (*found == 0.0 && !std::isfinite(value(x, i))) { *found = place; }
  }
}

}  // namespace tessera::kernels::reference
