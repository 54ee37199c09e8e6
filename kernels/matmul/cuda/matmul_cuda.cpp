#include <fmt/format.h>

#include <algorithm>

#include "device/cuda/cuda_check.hpp"
#include "kernels/accumulate/accumulate.hpp"
#include "kernels/add/add.hpp"
#include "kernels/bias/bias.hpp"
#include "kernels/cast/cast.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/matmul/cuda/cublas_matmul.hpp"
#include "kernels/support/workspace.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cuda {
namespace {

bool multiply(const Gemm& gemm, Stream stream) {
  tessera::cuda::CudaStream& cuda = tessera::cuda::cuda_stream(stream);
  auto& cublas = cuda.extension<CublasLt>();
  return cublas.multiply(gemm, cuda.open());
}

[[noreturn]] void throw_no_algorithm(const MatMul& product) {
  throw DeviceError{
      fmt::format("cuBLASLt has no algorithm on this device for {}", name_of(product))};
}

/// Overwrites C with `from` or adds it, rounded once.
void round_into(Values c, const float* from, std::int64_t elems, Write write, Stream stream) {
  if (write == Write::add) {
    accumulate(c, from, elems, stream);
  } else {
    cast({c.data, elems, c.dtype}, {from, elems, DType::fp32}, stream);
  }
}

/// Computes rows [first, first + rows) of the product in fp32 at `at`, then rounds them into C.
void multiply_rows(const MatMul& p, std::int64_t first, std::int64_t rows, float* at,
                   device::StreamWorkspace workspace, Stream stream) {
  Gemm gemm{p, workspace, nullptr, stream.state()->kernels().multiprocessors};
  gemm.product.a_stride = p.a_row_elems();
  gemm.product.m = rows;
  gemm.product.a = p.a.at(p.transpose_a == Transpose::yes ? first : first * p.a_row_elems());
  gemm.product.c = at;
  gemm.product.c_stride = 0;
  gemm.product.write = Write::overwrite;
  if (!multiply(gemm, stream)) { throw_no_algorithm(gemm.product); }
  const std::int64_t c_row = p.c_row_elems();
  const Values c = p.c.at(first * c_row);
  if (c_row == p.n) { return round_into(c, at, rows * p.n, p.write, stream); }
  for (std::int64_t r = 0; r < rows; ++r) {
    round_into(c.at(r * c_row), at + r * p.n, p.n, p.write, stream);
  }
}

/// For a C that cuBLASLt does not write, or rounds twice: half of the workspace holds rows of C in
/// fp32, cuBLASLt uses the other half.
void multiply_through_workspace(const MatMul& p, Stream stream) {
  const device::StreamWorkspace whole = product_workspace(stream);
  const std::size_t half = whole.bytes / 2;
  const device::StreamWorkspace rest{static_cast<std::byte*>(whole.data) + half, half};
  std::int64_t rows = static_cast<std::int64_t>(half / sizeof(float)) / p.n;
  expects(rows > 0, "matmul: a row of C is too long to be rounded in the stream's workspace");
  if (rows > 64) { rows -= rows % 64; }  // pieces of A start at multiples of 16 bytes, as A does
  for (std::int64_t first = 0; first < p.m; first += rows) {
    multiply_rows(p, first, std::min(rows, p.m - first), static_cast<float*>(whole.data), rest,
                  stream);
  }
}

void multiply_then_gelu(const MatMul& p, Stream stream) {
  MatMul inner = p;
  inner.epilogue = Epilogue::none;
  if (p.epilogue == Epilogue::gelu) {
    inner.c = p.pre_gelu;
    cuda::matmul(inner, stream);
    cuda::gelu_forward(p.pre_gelu, p.c, p.m * p.n, stream, GELU::tanh);
  } else {
    cuda::matmul(inner, stream);
    cuda::gelu_backward(p.pre_gelu, p.c, p.c, p.m * p.n, stream, GELU::tanh);
  }
}

/// A product computes sums of columns only if that was measured to be faster, which a recorded
/// algorithm says. They are then at the start of the workspace.
bool multiply_in_one_call(const MatMul& p, Stream stream) {
  if (p.m == 0 || p.k == 0 || !is_one_call(p)) { return false; }
  const Gemm gemm = gemm_of(p, stream);
  if (p.bias_gradient && recorded(gemm) == nullptr) { return false; }
  if (!multiply(gemm, stream)) { return false; }
  if (p.bias_gradient) {
    round_into(p.bias_gradient, gemm.product.bias_gradient.as<float>(), p.n, p.bias_gradient_write,
               stream);
  }
  return true;
}

void multiply_then_sum_columns(const MatMul& p, Stream stream) {
  MatMul inner = p;
  inner.bias_gradient = {};
  cuda::matmul(inner, stream);
  cuda::bias_gradient(p.b, p.bias_gradient, p.k, p.n, p.bias_gradient_write, stream);
}

void multiply_then_add_residual(const MatMul& p, Stream stream) {
  MatMul inner = p;
  inner.residual = {};
  cuda::matmul(inner, stream);
  add(p.residual, p.c, p.c, p.m * p.n, stream);
}

void multiply_then_add_bias(const MatMul& p, Stream stream) {
  MatMul inner = p;
  inner.bias = {};
  cuda::matmul(inner, stream);
  add_bias(p.c, p.bias, p.m, p.n, stream);
}

void overwrite_with_zero(const MatMul& p, Stream stream) {
  const bool gaps = p.c_row_elems() != p.n;
  const std::int64_t rows = gaps ? p.m : 1;
  const std::size_t bytes = static_cast<std::size_t>(gaps ? p.n : p.m * p.n) * size_of(p.c.dtype);
  for (std::int64_t r = 0; r < rows; ++r) {
    tessera::cuda::check(cudaMemsetAsync(p.c.at(r * p.c_row_elems()).data, 0, bytes,
                                         tessera::cuda::cuda_stream(stream).open()),
                         "cudaMemsetAsync");
  }
}

}  // namespace

device::StreamWorkspace product_workspace(Stream stream) {
  constexpr std::size_t bytes = stream_workspace_bytes(DeviceKind::cuda);
  const device::StreamWorkspace& whole = stream.state()->workspace();
  expects(whole.bytes >= bytes, "matmul: the stream's workspace is not as large as it must be");
  return {whole.data, bytes};
}

Gemm gemm_of(const MatMul& product, Stream stream) {
  const device::StreamKernels& kernels = stream.state()->kernels();
  Gemm gemm{product, product_workspace(stream), kernels.products, kernels.multiprocessors};
  if (!product.bias_gradient) { return gemm; }
  constexpr std::size_t alignment = 256;
  const auto sums = round_up(static_cast<std::size_t>(product.n) * sizeof(float), alignment);
  expects(sums < gemm.workspace.bytes, "matmul: the stream's workspace has no room for sums");
  gemm.product.bias_gradient = static_cast<float*>(gemm.workspace.data);
  gemm.workspace = {static_cast<std::byte*>(gemm.workspace.data) + sums,
                    gemm.workspace.bytes - sums};
  return gemm;
}

// Computes the product in one call, or removes its last step, computes the rest, and then does that
// step.
void matmul(const MatMul& p, Stream stream) {
  check_matmul(p);
  expects(p.a.dtype == p.b.dtype, "matmul: on CUDA the factors A and B are of one dtype");
  if (p.n == 0 || (p.m == 0 && !p.bias_gradient)) { return; }
  if (multiply_in_one_call(p, stream)) { return; }
  if (p.bias_gradient) { return multiply_then_sum_columns(p, stream); }
  if (p.residual) { return multiply_then_add_residual(p, stream); }
  if (p.epilogue != Epilogue::none) { return multiply_then_gelu(p, stream); }
  if (p.bias) { return multiply_then_add_bias(p, stream); }
  if (p.k == 0) {
    if (p.write == Write::overwrite) { overwrite_with_zero(p, stream); }
    return;
  }
  if (is_one_call(p)) { throw_no_algorithm(p); }
  multiply_through_workspace(p, stream);
}

}  // namespace tessera::kernels::cuda
