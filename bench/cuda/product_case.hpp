#pragma once

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// A product of bf16 matrices, and C in `result`, of the shape of `like`; beside it plain
/// cuBLASLt's where the program was built with the CUDA toolkit.
[[nodiscard]] Contest product(Rig& rig, const kernels::MatMul& like, DType result);

}  // namespace tessera::bench
