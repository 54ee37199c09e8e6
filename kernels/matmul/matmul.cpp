#include "kernels/matmul/matmul.hpp"

#include "tessera/base/error.hpp"

namespace tessera::kernels {

void check_matmul(const MatMul& product) {
  for (const DType dtype : {product.a.dtype, product.b.dtype, product.c.dtype}) {
    expects(dtype != DType::fp64, "matmul: fp64 is for sums alone; use fp32, bf16 or fp16");
  }
  const bool plain = !product.bias && product.epilogue == Epilogue::none;
  expects(plain || product.write == Write::overwrite,
          "matmul: bias and epilogue are for products that overwrite C");
  expects(product.epilogue != Epilogue::gelu_gradient || !product.bias,
          "matmul: a gradient of GELU takes no bias");
  expects(plain || product.c_row_elems() == product.n,
          "matmul: bias and epilogue are for a C without gaps between its rows");
  expects(
      product.c_row_elems() >= product.n &&
          product.a_row_elems() >= (product.transpose_a == Transpose::yes ? product.m : product.k),
      "matmul: a stride is shorter than a row");
  const bool given = product.pre_gelu || product.m * product.n == 0;
  expects(
      product.epilogue == Epilogue::none || (given && product.pre_gelu.dtype == product.c.dtype),
      "matmul: an epilogue needs `pre_gelu`, of the dtype of C");
}

}  // namespace tessera::kernels
