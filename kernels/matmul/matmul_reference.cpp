#include "kernels/bias/bias.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

void multiply(const MatMul& p, Values c) {
  const std::int64_t stride = p.a_row_elems();
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum =
          p.write == Write::add ? static_cast<double>(element(c, i * p.c_row_elems() + j)) : 0.0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        const float a =
            element(p.a, p.transpose_a == Transpose::yes ? l * stride + i : i * stride + l);
        const float b = element(p.b, p.transpose_b == Transpose::yes ? j * p.k + l : l * p.n + j);
        sum += static_cast<double>(a) * static_cast<double>(b);
      }
      if (p.bias) { sum += static_cast<double>(element(p.bias, j)); }
      if (p.residual) { sum += static_cast<double>(element(p.residual, i * p.n + j)); }
      set_element(c, i * p.c_row_elems() + j, static_cast<float>(sum));
    }
  }
}

}  // namespace

void matmul(const MatMul& p, Stream stream) {
  multiply(p, p.epilogue == Epilogue::gelu ? p.pre_gelu : p.c);
  if (p.epilogue == Epilogue::gelu) {
    reference::gelu_forward(p.pre_gelu, p.c, p.m * p.n, stream, GELU::tanh);
  }
  if (p.epilogue == Epilogue::gelu_gradient) {
    reference::gelu_backward(p.pre_gelu, p.c, p.c, p.m * p.n, stream, GELU::tanh);
  }
  if (p.bias_gradient) {
    reference::bias_gradient(p.b, p.bias_gradient, p.k, p.n, p.bias_gradient_write, stream);
  }
}

}  // namespace tessera::kernels::reference
