#include <algorithm>

#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/support/element.hpp"

namespace tessera::kernels::reference {

void squared_norm(ConstValues x, std::int64_t elems, double* sum, Stream) {
  for (std::int64_t block = 0; block < elems; block += kSquaredNormBlock) {
    const std::int64_t end = std::min(block + kSquaredNormBlock, elems);
    double lanes[kSquaredNormLanes] = {};
    for (std::int64_t i = block; i < end; ++i) {
      const auto value = static_cast<double>(read(x, i));
      lanes[(i - block) % kSquaredNormLanes] += value * value;
    }
    double block_sum = 0.0;
    for (const double lane : lanes) { block_sum += lane; }
    *sum += block_sum;
  }
}

}  // namespace tessera::kernels::reference
