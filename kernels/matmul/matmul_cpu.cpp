#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/add/add.hpp"
#include "kernels/bias/bias.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/matmul/matmul_algorithms.hpp"
#include "kernels/matmul/matmul_blocks.hpp"
#include "kernels/matmul/matmul_onednn.hpp"
#include "kernels/matmul/matmul_rows.hpp"
#include "kernels/matmul/matmul_split.hpp"
#include "kernels/matmul/matmul_strided.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

StridedMatMul whole(const MatMul& p) {
  return {.a = {p.a.as<float>(), p.a_row_elems()},
          .transpose_a = p.transpose_a,
          .b = {p.b.as<float>(), p.transpose_b == Transpose::yes ? p.k : p.n},
          .transpose_b = p.transpose_b,
          .c = {p.c.as<float>(), p.c_row_elems()},
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

void with_eigen(const MatMul& product, Stream stream) {
  const MatMulSplit split =
      split_matmul(product.m, product.n, product.k, device::threads_of(stream));
  device::parallel_for(stream, split.pieces(), 1, [&](const device::Chunk& chunk) {
    for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
      const StridedMatMul piece = piece_of(whole(product), split, i);
      if (product.write == Write::overwrite) { fill(piece.c, piece.m, piece.n); }
      add_matmul(piece);
    }
  });
}

void with_onednn(const MatMul& product, Stream stream) {
  const RowPieces pieces{product};
  device::parallel_for(stream, pieces.count, 1, [&](const device::Chunk& chunk) {
    for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
      const std::int64_t first = i * pieces.rows;
      multiply_rows_with_onednn(product, first, std::min(pieces.rows, product.m - first));
    }
  });
}

void with_blocks(const MatMul& product, Stream stream) {
  device::parallel_for(stream, block_count(product), 1, [&](const device::Chunk& chunk) {
    for (std::int64_t i = chunk.first; i < chunk.last; ++i) { multiply_block(product, i); }
  });
}

MatMulAlgorithm fastest_algorithm(const MatMul& p) {
  const DType a = p.a.dtype;
  const bool fp32 = a == DType::fp32 && p.b.dtype == a && p.c.dtype == a;
  const bool onednn = p.b.dtype == a && (p.c.dtype == a || p.c.dtype == DType::fp32) &&
                      onednn_is_faster(a) && p.m > 0 && is_large_enough_for_onednn(p.n, p.k);
  if (onednn) { return MatMulAlgorithm::onednn; }
  return fp32 ? MatMulAlgorithm::eigen : MatMulAlgorithm::convert;
}

/// Computes the product only, without bias, epilogue or residual.
void multiply_with(MatMulAlgorithm algorithm, const MatMul& product, Stream stream) {
  device::enqueue(stream, [=] {
    switch (algorithm) {
      case MatMulAlgorithm::eigen:
        return with_eigen(product, stream);
      case MatMulAlgorithm::onednn:
        return with_onednn(product, stream);
      case MatMulAlgorithm::convert:
        return with_blocks(product, stream);
    }
  });
}

}  // namespace

std::string_view to_string(MatMulAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case MatMulAlgorithm::eigen:
      return "Eigen";
    case MatMulAlgorithm::onednn:
      return "oneDNN";
    case MatMulAlgorithm::convert:
      return "conversion";
  }
  return "?";
}

std::vector<MatMulAlgorithm> algorithms_of(const MatMul& p) {
  const DType a = p.a.dtype;
  std::vector<MatMulAlgorithm> algorithms{fastest_algorithm(p)};
  const auto add = [&](MatMulAlgorithm algorithm, bool possible) {
    if (possible && algorithm != algorithms.front()) { algorithms.push_back(algorithm); }
  };
  const bool positive = p.m > 0 && p.n >= kLeastColumns && p.k > 0;
  add(MatMulAlgorithm::eigen, a == DType::fp32 && p.b.dtype == a && p.c.dtype == a);
  add(MatMulAlgorithm::onednn, positive && p.b.dtype == a &&
                                   (p.c.dtype == a || p.c.dtype == DType::fp32) &&
                                   onednn_computes(a));
  add(MatMulAlgorithm::convert, true);
  return algorithms;
}

void matmul_with(MatMulAlgorithm algorithm, const MatMul& whole, Stream stream) {
  check_matmul(whole);
  MatMul product = whole;
  if (whole.epilogue == Epilogue::gelu) { product.c = whole.pre_gelu; }
  multiply_with(algorithm, product, stream);
  if (whole.bias) { cpu::add_bias(product.c, whole.bias, whole.m, whole.n, stream); }
  const std::int64_t elems = whole.m * whole.n;
  if (whole.epilogue == Epilogue::gelu) {
    cpu::gelu_forward(product.c, whole.c, elems, stream, GELU::tanh);
  } else if (whole.epilogue == Epilogue::gelu_gradient) {
    cpu::gelu_backward(whole.pre_gelu, whole.c, whole.c, elems, stream, GELU::tanh);
  }
  if (whole.bias_gradient) {
    cpu::bias_gradient(whole.b, whole.bias_gradient, whole.k, whole.n, whole.bias_gradient_write,
                       stream);
  }
  if (whole.residual) { cpu::add(whole.residual, whole.c, whole.c, elems, stream); }
}

void cpu::matmul(const MatMul& product, Stream stream) {
  matmul_with(fastest_algorithm(product), product, stream);
}

}  // namespace tessera::kernels
