#define Eigen EigenBaseline
#include "kernels/matmul/matmul_eigen.hpp"

namespace tessera::kernels {

void add_matmul_baseline(const StridedMatMul& product) {
  add_matmul_with_eigen(product);
}

}  // namespace tessera::kernels
