#include <cublasLt.h>
#include <fmt/format.h>

#include "bench/cuda/plain_product.hpp"
#include "tessera/base/error.hpp"

namespace tessera::bench {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20U;

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) { return; }
  throw DeviceError{fmt::format("{}: {}", call, cublasLtGetStatusString(status))};
}

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasOperation_t operation_of(kernels::Transpose transpose) {
  return transpose == kernels::Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// Layout of a row-major matrix of rows x columns, `stride` apart: to cuBLASLt, columns x rows.
cublasLtMatrixLayout_t layout_of(DType dtype, std::int64_t rows, std::int64_t columns,
                                 std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, cuda_type(dtype), static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), stride),
        "cublasLtMatrixLayoutCreate");
  return layout;
}

/// False if the module is emulated: cuBLASLt itself does not know the emulated device.
bool finds_a_device() {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status == CUBLAS_STATUS_NOT_INITIALIZED) {
    fmt::print(stderr, "cuBLASLt finds no device: nothing stands beside the module's products\n");
    return false;
  }
  check(status, "cublasLtCreate");
  (void)cublasLtDestroy(handle);
  return true;
}

/// Everything cuBLASLt wants for one product. C^T = op(B)^T op(A)^T in its column-major terms.
class PlainProduct {
 public:
  PlainProduct(Rig& rig, const kernels::MatMul& p)
      : product_{p}, workspace_{device_bytes(rig, kWorkspaceBytes)} {
    const bool flipped_a = p.transpose_a == kernels::Transpose::yes;
    const bool flipped_b = p.transpose_b == kernels::Transpose::yes;
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation_of(p.transpose_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation_of(p.transpose_a));
    const std::int64_t b_columns = flipped_b ? p.k : p.n;
    first_ = layout_of(p.b.dtype, flipped_b ? p.n : p.k, b_columns, b_columns);
    second_ = layout_of(p.a.dtype, flipped_a ? p.k : p.m, flipped_a ? p.m : p.k, p.a_row_elems());
    result_ = layout_of(p.c.dtype, p.m, p.n, p.c_row_elems());
    choose();
  }
  ~PlainProduct() {
    (void)cublasLtMatrixLayoutDestroy(result_);
    (void)cublasLtMatrixLayoutDestroy(second_);
    (void)cublasLtMatrixLayoutDestroy(first_);
    (void)cublasLtMatmulDescDestroy(operation_);
    (void)cublasLtDestroy(handle_);
  }
  PlainProduct(const PlainProduct&) = delete;
  PlainProduct& operator=(const PlainProduct&) = delete;

  void enqueue(Stream stream) const {
    const float alpha = 1.0F;
    const float beta = product_.write == kernels::Write::add ? 1.0F : 0.0F;
    check(cublasLtMatmul(handle_, operation_, &alpha, product_.b.data, first_, product_.a.data,
                         second_, &beta, product_.c.data, result_, product_.c.data, result_,
                         &algorithm_, workspace_.get(), kWorkspaceBytes,
                         static_cast<cudaStream_t>(stream.native())),
          "cublasLtMatmul");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  void choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::uint64_t bytes = kWorkspaceBytes;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &bytes, sizeof(bytes)),
          "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, first_, second_, result_, result_,
                                         preference, 1, &best, &found),
          "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) { throw DeviceError{"cuBLASLt has no algorithm for a plain product"}; }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    algorithm_ = best.algo;
  }

  kernels::MatMul product_;
  std::shared_ptr<void> workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace

std::function<void()> plain_product(Rig& rig, const kernels::MatMul& product) {
  if (!finds_a_device()) { return {}; }
  const auto plain = std::make_shared<const PlainProduct>(rig, product);
  return [plain, &rig] { plain->enqueue(rig.stream()); };
}

}  // namespace tessera::bench
