#define Eigen EigenBaseline
#include "kernels/matmul/matmul_eigen.hpp"

namespace tessera::kernels {

void add_blocks_baseline(const StridedMatMul& product) {
  add_with_eigen(product);
}

}  // namespace tessera::kernels
