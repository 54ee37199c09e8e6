#define Eigen EigenBaseline
#include "kernels/support/product_eigen.hpp"

namespace tessera::kernels {

void add_product_baseline(const Product& product) {
  add_product_with_eigen(product);
}

}  // namespace tessera::kernels
