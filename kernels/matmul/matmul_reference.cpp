#include "kernels/matmul/matmul.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {

void matmul(const MatMul& p, Stream) {
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = p.write == Write::add ? static_cast<double>(element(p.c, i * p.n + j)) : 0.0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        const float a = element(p.a, p.transpose_a == Transpose::yes ? l * p.m + i : i * p.k + l);
        const float b = element(p.b, p.transpose_b == Transpose::yes ? j * p.k + l : l * p.n + j);
        sum += static_cast<double>(a) * static_cast<double>(b);
      }
      set_element(p.c, i * p.n + j, static_cast<float>(sum));
    }
  }
}

}  // namespace tessera::kernels::reference
