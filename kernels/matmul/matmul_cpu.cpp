#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/support/product.hpp"

namespace tessera::kernels::cpu {

void matmul(const MatMul& product, Stream stream) {
  enqueue(stream, [p = product] {
    if (p.write == Write::overwrite) { std::fill_n(p.c, p.m * p.n, 0.0F); }
    add_product({.a = {p.a, p.transpose_a == Transpose::yes ? p.m : p.k},
                 .transpose_a = p.transpose_a,
                 .b = {p.b, p.transpose_b == Transpose::yes ? p.k : p.n},
                 .transpose_b = p.transpose_b,
                 .c = {p.c, p.n},
                 .m = p.m,
                 .n = p.n,
                 .k = p.k});
  });
}

}  // namespace tessera::kernels::cpu
