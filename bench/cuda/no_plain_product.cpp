// Replaces cuda_plain_product.cpp in builds without the CUDA toolkit.
#include "bench/cuda/plain_product.hpp"

namespace tessera::bench {

std::function<void()> plain_product(Rig& /*rig*/, const kernels::MatMul& /*product*/) {
  return {};
}

}  // namespace tessera::bench
