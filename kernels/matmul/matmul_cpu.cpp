#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/support/product.hpp"

namespace tessera::kernels::cpu {

void matmul(const MatMul& product, Stream stream) {
  enqueue(stream, [p = product] {
    if (p.write == Write::overwrite) { std::fill_n(p.c, p.m * p.n, 0.0F); }
    add_product({p.a, p.transpose_a == Transpose::yes ? p.m : p.k}, p.transpose_a,
                {p.b, p.transpose_b == Transpose::yes ? p.k : p.n}, p.transpose_b, {p.c, p.n}, p.m,
                p.n, p.k);
  });
}

}  // namespace tessera::kernels::cpu
