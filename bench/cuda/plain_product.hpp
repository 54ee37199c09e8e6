#pragma once

#include <functional>

#include "bench/cuda/rig.hpp"
#include "kernels/matmul/matmul.hpp"

namespace tessera::bench {

/// Enqueues `product`, without bias and epilogue, as cuBLASLt does when it is asked for nothing but
/// the product: its heuristic's first choice, in a workspace of 32 MiB. Empty where this program
/// was built without the CUDA toolkit, or cuBLASLt finds no device.
[[nodiscard]] std::function<void()> plain_product(Rig& rig, const kernels::MatMul& product);

}  // namespace tessera::bench
