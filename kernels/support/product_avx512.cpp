// Compiled for x86-64-v4 where the compiler knows it; empty elsewhere.
#ifdef TESSERA_HAS_AVX512_PRODUCT

#define Eigen EigenAvx512
#include "kernels/support/product_eigen.hpp"

namespace tessera::kernels {

void add_product_avx512(const Product& product) {
  add_product_with_eigen(product);
}

}  // namespace tessera::kernels

#endif
