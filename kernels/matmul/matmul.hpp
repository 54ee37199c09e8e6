#pragma once

#include "tessera/kernels/matmul.hpp"

namespace tessera::kernels {

/// ContractError for: fp64; a bias, an epilogue or a residual with a product that is added to C or
/// with a C with gaps; an epilogue without its `pre_gelu`; a residual beside an epilogue, of
/// another dtype than C, or in C's memory; a bias_gradient with a C with gaps, a transposed B, a
/// bias, an epilogue or a residual; and a stride shorter than a row.
void check_matmul(const MatMul& product);

/// On a CPU a bias, an epilogue and a residual give the bits of add_bias, the GELU kernels and add
/// after the product: intermediate results are rounded to C's dtype. CUDA may compute all in fp32
/// and round once, though cuBLASLt rounds a 16-bit product before it adds a residual; whether it
/// does depends on sizes, dtypes and addresses modulo 16 (kernels/matmul/cuda/cublas_matmul.hpp).
/// If C is 16-bit and either has another dtype than A and B or is added to, CUDA multiplies in fp32
/// into the stream's workspace, some rows at a time, and rounds from there: one launch per row if C
/// has gaps.
///
/// Memory: each thread keeps its buffers for its next product: 1 MiB of panels where numbers are
///         converted, with Eigen a copy of 8 rows where m is no multiple of 8 (matmul_strided.hpp),
///         and with oneDNN its copies (matmul_rows.hpp), its scratchpad (under 4 MiB) and 64
///         compiled products. On CUDA the stream's workspace;
///         the stream keeps a cuBLASLt handle and at most its last 256 plans, on the host.
/// Errors: DeviceError if oneDNN or cuBLASLt fails, naming the product. ContractError as for
///         check_matmul, and on CUDA if A and B have two dtypes or there is no workspace.
using MatMulKernel = void(const MatMul& product, Stream stream);

namespace reference {
MatMulKernel matmul;
}
namespace cpu {
MatMulKernel matmul;
}
namespace cuda {
MatMulKernel matmul;
}

}  // namespace tessera::kernels
