#pragma once

#include "tessera/kernels/matmul.hpp"

namespace tessera::kernels {

/// ContractError for fp64, for a bias, an epilogue or a residual of a product that is added to C,
/// for one of a C with gaps, for an epilogue without its `pre_gelu`, for a residual that has an
/// epilogue beside it, another dtype than C or C's memory, for a bias_gradient of a product that
/// overwrites C or has gaps there or a transposed B, and for a stride shorter than a row.
void check_matmul(const MatMul& product);

/// On a CPU a bias, an epilogue and a residual are add_bias, the GELU kernels and add after the
/// product, to the bit: what is there is rounded to C's dtype in between. CUDA may do all in fp32
/// and round once, though cuBLASLt rounds a product of 16 bits before it adds a residual; it does
/// so by a rule of sizes, dtypes and addresses modulo 16 (kernels/matmul/cuda/cublas_matmul.hpp). A
/// C of 16 bits that A and B do not have, or that is added to, is multiplied there in fp32 into the
/// stream's workspace, some rows at a time, and rounded from there: where C has gaps, one launch a
/// row.
///
/// Memory: what a thread works in is kept for its next product: 1 MiB of panels where numbers are
///         converted, 256 k bytes where a transposed A of bf16 is cut into pieces, and with oneDNN
///         its scratchpad (under 4 MiB) and 64 compiled products. On CUDA the stream's workspace;
///         the stream keeps a cuBLASLt handle and its last 256 plans at most, on the host.
/// Errors: DeviceError if oneDNN or cuBLASLt fails, naming the product. ContractError as
///         check_matmul, on CUDA also for an A and a B of two dtypes, and without a workspace.
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
