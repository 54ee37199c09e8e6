#include "kernels/matmul/cuda/cublas_matmul.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "device/cuda/cuda_use.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::cuda {
namespace {

constexpr std::uintptr_t kMostAlignment = 16;
constexpr std::uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // or none, 0

void check(cublasStatus_t status, const char* call, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) { return; }
  throw DeviceError{fmt::format("{} failed for {}: {} ({})", call, what,
                                cublasLtGetStatusString(status), cublasLtGetStatusName(status))};
}

// A failure here means an invalid plan, not a failed device: we set the attributes.
void check(cublasStatus_t status, const char* call) {
  check(status, call, "a plan of a product");
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  const cublasStatus_t status = cublasLtMatmulDescSetAttribute(
      &operation, attribute, static_cast<const void*>(&value), sizeof(value));
  check(status, "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& preference,
         cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

cudaDataType_t cuda_type(DType dtype) noexcept {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasOperation_t operation_of(Transpose transpose) noexcept {
  return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

std::uint32_t alignment_of(const void* data) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | kMostAlignment;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

bool is_aligned(const void* data) noexcept {
  return alignment_of(data) == kMostAlignment;
}

cublasLtEpilogue_t epilogue_of(const MatMul& p) noexcept {
  switch (p.epilogue) {
    case Epilogue::gelu:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::none:
      break;
  }
  // cuBLASLt computes the transpose, with B first: B is its A.
  if (p.bias_gradient) { return CUBLASLT_EPILOGUE_BGRADA; }
  return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Whether the epilogue reads a bias or writes the gradient of one.
bool has_bias(cublasLtEpilogue_t epilogue) noexcept {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

bool has_gelu(cublasLtEpilogue_t epilogue) noexcept {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/// The matrix that is added to the product: the residual, or our C, which is cuBLASLt's D. cuBLASLt
/// calls it C.
const void* added_to(const MatMul& p) noexcept {
  return p.residual ? p.residual.data : p.c.data;
}

/// Layout of a stored row-major matrix of rows x columns: to cuBLASLt, columns x rows.
cublasLtMatrixLayoutOpaque_t make_layout(DType dtype, std::int64_t rows, std::int64_t columns,
                                         std::int64_t stride) {
  cublasLtMatrixLayoutOpaque_t layout{};
  check(cublasLtMatrixLayoutInit(&layout, cuda_type(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), stride),
        "cublasLtMatrixLayoutInit");
  return layout;
}

}  // namespace

bool is_one_call(const MatMul& p) noexcept {
  const bool alike = p.c.dtype == p.a.dtype;
  if (p.b.dtype != p.a.dtype || !(alike || p.c.dtype == DType::fp32)) { return false; }
  if (p.write == Write::add && size_of(p.c.dtype) == 2) { return false; }
  if (p.bias && !(alike && p.bias.dtype == p.c.dtype && is_aligned(p.bias.data))) { return false; }
  if (p.bias_gradient && p.c.dtype != DType::fp32) { return false; }
  if (p.epilogue == Epilogue::none) { return true; }
  return alike && size_of(p.c.dtype) == 2 && p.n % 8 == 0 && is_aligned(p.pre_gelu.data);
}

const ProductAlgorithm* recorded(const Gemm& gemm) noexcept {
  const MatMul& p = gemm.product;
  const bool aligned = is_aligned(p.a.data) && is_aligned(p.b.data) && is_aligned(p.c.data) &&
                       is_aligned(added_to(p));
  return gemm.choices != nullptr && aligned ? gemm.choices->find(kind_of(p)) : nullptr;
}

CublasLt::CublasLt() {
  tessera::cuda::start_library(
      [&] { check(cublasLtCreate(&handle_), "cublasLtCreate", "a stream"); });
}

CublasLt::~CublasLt() {
  (void)cublasLtDestroy(handle_);
}

bool CublasLt::multiply(const Gemm& gemm, cudaStream_t stream) {
  Plan* const plan = plan_of(gemm);
  if (plan == nullptr) { return false; }
  const MatMul& p = gemm.product;
  if (p.bias) { set(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data); }
  if (p.bias_gradient) {
    set(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias_gradient.data);
  }
  if (p.epilogue != Epilogue::none) {
    set(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.pre_gelu.data);
  }
  const float alpha = 1.0F;
  const float beta = p.write == Write::add || p.residual ? 1.0F : 0.0F;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, &plan->operation, &alpha, p.b.data, &plan->first, p.a.data,
                     &plan->second, &beta, added_to(p), &plan->result, p.c.data, &plan->result,
                     &plan->algorithm, gemm.workspace.data, gemm.workspace.bytes, stream);
  if (status != CUBLAS_STATUS_SUCCESS) { check(status, "cublasLtMatmul", name_of(p)); }
  return true;
}

CublasLt::GemmKey CublasLt::key_of(const Gemm& gemm) noexcept {
  const MatMul& p = gemm.product;
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a_stride = p.a_row_elems(),
          .c_stride = p.c_row_elems(),
          .workspace_bytes = gemm.workspace.bytes,
          .multiprocessors = gemm.multiprocessors,
          .factors = p.a.dtype,
          .result = p.c.dtype,
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .epilogue = epilogue_of(p),
          .a_alignment = alignment_of(p.a.data),
          .b_alignment = alignment_of(p.b.data),
          .c_alignment = alignment_of(p.c.data),
          .added_alignment = alignment_of(added_to(p))};
}

CublasLt::Plan* CublasLt::plan_of(const Gemm& gemm) {
  const GemmKey key = key_of(gemm);
  std::optional<Plan>& plan = plans_.get(key, [&] { return make_plan(gemm, key); });
  return plan ? &*plan : nullptr;
}

CublasLt::Plan CublasLt::describe(const GemmKey& key) {
  const bool flipped_a = key.transpose_a == Transpose::yes;
  const bool flipped_b = key.transpose_b == Transpose::yes;
  Plan plan{};
  check(cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescInit");
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(key.transpose_b));
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(key.transpose_a));
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
  if (key.multiprocessors > 0) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{key.multiprocessors});
  }
  // The heuristic reads only the alignment of these pointers.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is never dereferenced
  const void* const aligned = reinterpret_cast<const void*>(kMostAlignment);
  if (has_bias(key.epilogue)) { set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned); }
  if (has_gelu(key.epilogue)) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
  }
  plan.first = make_layout(key.factors, flipped_b ? key.n : key.k, flipped_b ? key.k : key.n,
                           flipped_b ? key.k : key.n);
  plan.second =
      make_layout(key.factors, flipped_a ? key.k : key.m, flipped_a ? key.m : key.k, key.a_stride);
  plan.result = make_layout(key.result, key.m, key.n, key.c_stride);
  return plan;
}

std::optional<CublasLt::Plan> CublasLt::make_plan(const Gemm& gemm, const GemmKey& key) const {
  Plan plan = describe(key);
  if (const ProductAlgorithm* const chosen = recorded(gemm)) {
    take(*chosen, gemm, plan);
    return plan;
  }
  const std::vector<cublasLtMatmulAlgo_t> offered = heuristic(key, plan, 1);
  if (offered.empty()) { return {}; }
  plan.algorithm = offered.front();
  return plan;
}

// An algorithm that cuBLASLt accepts may still add sums in any order, differently in every run.
void CublasLt::take(const ProductAlgorithm& chosen, const Gemm& gemm, Plan& plan) const {
  std::ranges::copy(chosen, plan.algorithm.data);
  cublasLtMatmulHeuristicResult_t found{};
  std::uint32_t reduction = 0;
  std::size_t written = 0;
  const bool fits =
      cublasLtMatmulAlgoCheck(handle_, &plan.operation, &plan.first, &plan.second, &plan.result,
                              &plan.result, &plan.algorithm, &found) == CUBLAS_STATUS_SUCCESS &&
      found.workspaceSize <= gemm.workspace.bytes &&
      cublasLtMatmulAlgoConfigGetAttribute(&plan.algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                           &reduction, sizeof(reduction),
                                           &written) == CUBLAS_STATUS_SUCCESS &&
      (reduction & ~kReductions) == 0;
  if (fits) { return; }
  throw ConfigError{fmt::format(
      "`products`: what was recorded for {} is no algorithm for it that has an order of "
      "sums; record the products again, or leave them out",
      name_of(gemm.product))};
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::heuristic(const GemmKey& key, Plan& plan,
                                                      int most) const {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{key.workspace_bytes});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.added_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &plan.operation, &plan.first, &plan.second, &plan.result, &plan.result, &preference,
      most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) { return {}; }
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> offered;
  for (const auto& result : std::span{results}.first(static_cast<std::size_t>(found))) {
    if (result.state == CUBLAS_STATUS_SUCCESS) { offered.push_back(result.algo); }
  }
  return offered;
}

std::vector<ProductAlgorithm> CublasLt::offers(const Gemm& gemm, int most) const {
  const GemmKey key = key_of(gemm);
  Plan plan = describe(key);
  std::vector<ProductAlgorithm> all;
  for (const cublasLtMatmulAlgo_t& algorithm : heuristic(key, plan, most)) {
    std::ranges::copy(algorithm.data, all.emplace_back().begin());
  }
  return all;
}

std::string name_of(const MatMul& p) {
  return fmt::format("{} x {} x {} ({} x {} -> {})", p.m, p.n, p.k, to_string(p.a.dtype),
                     to_string(p.b.dtype), to_string(p.c.dtype));
}

}  // namespace tessera::kernels::cuda
