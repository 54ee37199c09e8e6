#include "emulated_cuda/cublaslt/descriptors.hpp"

#include <new>
#include <string>

#include "base/environment.hpp"

using emulated_cuda::load;
using emulated_cuda::LtLayout;
using emulated_cuda::LtOperation;
using emulated_cuda::LtPreference;
using emulated_cuda::store;

namespace {

/// INVALID_VALUE if `from` is null or the size is not the attribute's.
template <class T>
cublasStatus_t assign(T& member, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) { return CUBLAS_STATUS_INVALID_VALUE; }
  std::memcpy(static_cast<void*>(&member), from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set(LtOperation& operation, cublasLtMatmulDescAttributes_t attribute,
                   const void* from, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(operation.transpose_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(operation.transpose_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(operation.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(operation.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(operation.aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(operation.aux_stride, from, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return assign(operation.multiprocessors, from, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set(LtPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
                   const void* from, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference.workspace_bytes, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(preference.reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(preference.a_alignment, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(preference.b_alignment, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(preference.c_alignment, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference.d_alignment, from, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

/// Changes one attribute of the descriptor in `opaque`.
template <class T, class Opaque, class Attribute>
cublasStatus_t change(Opaque* opaque, Attribute attribute, const void* from, size_t bytes) {
  T value;
  if (!load(opaque, value)) { return CUBLAS_STATUS_INVALID_VALUE; }
  const cublasStatus_t status = set(value, attribute, from, bytes);
  if (status == CUBLAS_STATUS_SUCCESS) { store(opaque, value); }
  return status;
}

}  // namespace

struct cublasLtContext {};

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new (std::nothrow) cublasLtContext;
  return *handle == nullptr ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  const auto other = tessera::environment("TESSERA_EMULATED_CUBLASLT_VERSION");
  return other ? std::stoul(*other) : CUBLAS_VERSION;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_?";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t /*status*/) {
  return "the emulated cuBLASLt refuses";
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t stride) {
  if (size != sizeof(*layout)) { return CUBLAS_STATUS_ALLOC_FAILED; }
  if (rows == 0 || columns == 0 || stride < static_cast<int64_t>(rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  LtLayout value;
  value.type = type;
  value.rows = rows;
  value.columns = columns;
  value.stride = stride;
  store(layout, value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (size != sizeof(*operation)) { return CUBLAS_STATUS_ALLOC_FAILED; }
  LtOperation value;
  value.compute = compute;
  value.scale = scale;
  store(operation, value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  return change<LtOperation>(operation, attribute, from, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  if (size != sizeof(*preference)) { return CUBLAS_STATUS_ALLOC_FAILED; }
  store(preference, LtPreference{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, size_t bytes) {
  return change<LtPreference>(preference, attribute, from, bytes);
}
