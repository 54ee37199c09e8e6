#include "kernels/matmul/matmul.hpp"

#include "kernels/support/arguments.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {

void check_matmul(const MatMul& product) {
  for (const DType dtype : {product.a.dtype, product.b.dtype, product.c.dtype}) {
    expects(dtype != DType::fp64, "matmul: fp64 is for sums alone; use fp32, bf16 or fp16");
  }
  const bool plain = !product.bias && !product.residual && product.epilogue == Epilogue::none;
  expects(plain || product.write == Write::overwrite,
          "matmul: bias, epilogue and residual are for products that overwrite C");
  expects(product.epilogue != Epilogue::gelu_gradient || !product.bias,
          "matmul: a gradient of GELU takes no bias");
  expects(plain || product.c_row_elems() == product.n,
          "matmul: bias, epilogue and residual are for a C without gaps between its rows");
  expects(
      product.c_row_elems() >= product.n &&
          product.a_row_elems() >= (product.transpose_a == Transpose::yes ? product.m : product.k),
      "matmul: a stride is shorter than a row");
  const bool given = product.pre_gelu || product.m * product.n == 0;
  expects(
      product.epilogue == Epilogue::none || (given && product.pre_gelu.dtype == product.c.dtype),
      "matmul: an epilogue needs `pre_gelu`, of the dtype of C");
  const bool gaps = product.c_row_elems() != product.n;
  expects(!product.bias_gradient || (!gaps && product.transpose_b == Transpose::no),
          "matmul: a bias_gradient is for a B that is not transposed, and a C without gaps");
  expects(!product.bias_gradient || plain,
          "matmul: a bias_gradient comes without a bias, an epilogue and a residual");
  if (!product.residual) { return; }
  expects(product.epilogue == Epilogue::none,
          "matmul: a residual is for products without epilogue");
  expects(product.residual.dtype == product.c.dtype, "matmul: a residual has the dtype of C");
  expects(product.residual.data != product.c.data,
          "matmul: C is not its own residual; add to it with Write::add");
}

void matmul(const MatMul& product, Stream stream) {
  const Arguments check{"matmul"};
  const std::int64_t m = product.m;
  const std::int64_t n = product.n;
  const std::int64_t k = product.k;
  check.sizes({{"m", m}, {"n", n}, {"k", k}});
  check.arrays({{"a", product.a, m * k}, {"b", product.b, k * n}, {"c", product.c, m * n}});
  check.given_of_one_dtype({{"bias", product.bias, n}});
  check.given_of_one_dtype({{"residual", product.residual, m * n}});
  check.given_of_one_dtype({{"bias_gradient", product.bias_gradient, n}});
  check.row("a_stride", product.a_row_elems(), product.transpose_a == Transpose::yes ? m : k);
  check.row("c_stride", product.c_row_elems(), n);
  check_matmul(product);
  check.table(stream).matmul(product, stream);
}

std::int64_t fast_row_multiple(Stream stream) {
  return Arguments{"fast_row_multiple"}.table(stream).row_multiple;
}

}  // namespace tessera::kernels
