#pragma once

#include <functional>

#include "bench/cuda/rig.hpp"
#include "kernels/matmul/matmul.hpp"

namespace tessera::bench {

/// Enqueues `product` without bias and epilogue, as cuBLASLt computes a bare product: its
/// heuristic's first choice, in a workspace of 32 MiB. Empty if this program was built without the
/// CUDA toolkit, or if cuBLASLt finds no device.
[[nodiscard]] std::function<void()> plain_product(Rig& rig, const kernels::MatMul& product);

}  // namespace tessera::bench
