// Compiled for x86-64-v4 where the compiler knows it; empty elsewhere.
#ifdef TESSERA_HAS_AVX512_MATMUL

#define Eigen EigenAvx512
#include "kernels/matmul/matmul_eigen.hpp"

namespace tessera::kernels {

void add_blocks_avx512(const StridedMatMul& product) {
  add_with_eigen(product);
}

}  // namespace tessera::kernels

#endif
