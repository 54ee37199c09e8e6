#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/matmul/matmul.hpp"
#include "kernels/support/product.hpp"
#include "kernels/support/product_split.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::cpu {
namespace {

Product whole(const MatMul& p) {
  return {.a = {p.a.as<float>(), p.transpose_a == Transpose::yes ? p.m : p.k},
          .transpose_a = p.transpose_a,
          .b = {p.b.as<float>(), p.transpose_b == Transpose::yes ? p.k : p.n},
          .transpose_b = p.transpose_b,
          .c = {p.c.as<float>(), p.n},
          .m = p.m,
          .n = p.n,
          .k = p.k};
}

void fill(const Strided<float>& c, std::int64_t rows, std::int64_t columns) {
  if (columns == c.stride) {
    std::fill_n(c.data, rows * columns, 0.0F);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) { std::fill_n(c.data + r * c.stride, columns, 0.0F); }
}

}  // namespace

void matmul(const MatMul& product, Stream stream) {
  const auto fp32 = [](DType dtype) { return dtype == DType::fp32; };
  expects(fp32(product.a.dtype) && fp32(product.b.dtype) && fp32(product.c.dtype),
          "matmul: only fp32 is multiplied");
  enqueue(stream, [=] {
    const ProductSplit split = split_product(product.m, product.n, product.k, threads_of(stream));
    parallel_for(stream, split.pieces(), 1, [&](const Chunk& chunk) {
      for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
        const Product piece = piece_of(whole(product), split, i);
        if (product.write == Write::overwrite) { fill(piece.c, piece.m, piece.n); }
        add_product(piece);
      }
    });
  });
}

}  // namespace tessera::kernels::cpu
