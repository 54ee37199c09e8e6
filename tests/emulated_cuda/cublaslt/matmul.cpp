#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <type_traits>
#include <vector>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/controls.hpp"
#include "emulated_cuda/cublaslt/descriptors.hpp"
#include "emulated_cuda/stream_task.hpp"
#include "tessera/base/half.hpp"

// A product is summed in tiles of k, whose width follows from the caller's alignments, and in
// several splits if the workspace allows it. As in the library, other alignments or workspaces give
// other bits, and racing splits give other bits in every call. Later ones of the three offered
// algorithms have wider tiles.
namespace emulated_cuda {
namespace {

/// The product to compute: D (m x n) = alpha op(A) op(B) + beta C, all column-major.
struct Problem {
  LtOperation operation;
  LtLayout a;
  LtLayout b;
  LtLayout c;
  LtLayout d;
  std::int64_t k = 0;

  [[nodiscard]] std::int64_t m() const { return static_cast<std::int64_t>(d.rows); }
  [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(d.columns); }
};

bool has_bias(const Problem& p) {
  return p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS ||
         p.operation.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/// Whether the product also writes the sums of A's rows, one value per row of D.
bool sums_rows(const Problem& p) {
  return p.operation.epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

bool has_vector(const Problem& p) {
  return has_bias(p) || sums_rows(p);
}

bool has_aux(const Problem& p) {
  return p.operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !sums_rows(p) &&
         p.operation.epilogue != CUBLASLT_EPILOGUE_BIAS;
}

bool is_known(cublasLtEpilogue_t epilogue) {
  constexpr cublasLtEpilogue_t known[] = {
      CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_BIAS,  CUBLASLT_EPILOGUE_GELU_AUX,
      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_BGRADA};
  return std::find(std::begin(known), std::end(known), epilogue) != std::end(known);
}

/// Reads the descriptors; INVALID_VALUE if their sizes do not fit together.
cublasStatus_t read(Problem& p, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  if (!load(operation, p.operation) || !load(a, p.a) || !load(b, p.b) || !load(c, p.c) ||
      !load(d, p.d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool flipped_a = p.operation.transpose_a == CUBLAS_OP_T;
  const bool flipped_b = p.operation.transpose_b == CUBLAS_OP_T;
  const std::uint64_t k = flipped_a ? p.a.rows : p.a.columns;
  p.k = static_cast<std::int64_t>(k);
  const bool fits = (flipped_a ? p.a.columns : p.a.rows) == p.d.rows &&
                    (flipped_b ? p.b.rows : p.b.columns) == p.d.columns &&
                    (flipped_b ? p.b.columns : p.b.rows) == k && p.c.rows == p.d.rows &&
                    p.c.columns == p.d.columns;
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/// Checks the library's table for sums in fp32 and its rules for bias and aux.
bool is_supported(const Problem& p) {
  const cudaDataType_t factor = p.a.type;
  const bool factors = factor == CUDA_R_32F || factor == CUDA_R_16BF || factor == CUDA_R_16F;
  if (p.operation.compute != CUBLAS_COMPUTE_32F || p.operation.scale != CUDA_R_32F || !factors ||
      p.b.type != factor || p.c.type != p.d.type) {
    return false;
  }
  if (p.d.type != factor && p.d.type != CUDA_R_32F) { return false; }
  if (!is_known(p.operation.epilogue)) { return false; }
  const bool plain = p.operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT || sums_rows(p);
  if (!plain && p.d.type != factor) { return false; }
  const std::int64_t aux = p.operation.aux_stride;
  return !has_aux(p) || (aux % 8 == 0 && aux >= p.m());
}

struct Asked {
  std::mutex mutex;
  EmulatedCublasLtCounts counts{};
};

Asked& asked() {
  static Asked all;
  return all;
}

constexpr std::uint32_t kAlgorithms = std::extent_v<decltype(EmulatedCublasLtCounts::by_place)>;

void count(const Problem& p, const LtAlgorithm& algorithm) {
  const std::int64_t sizes[] = {p.m(), p.n(), p.k, p.a.stride, p.b.stride, p.d.stride};
  const bool even = std::ranges::all_of(sizes, [](std::int64_t size) { return size % 8 == 0; });
  const std::scoped_lock lock{asked().mutex};
  EmulatedCublasLtCounts& counts = asked().counts;
  ++counts.products;
  ++counts.by_place[algorithm.place];
  if (p.operation.multiprocessors > 0) {
    ++counts.limited;
    counts.multiprocessors = p.operation.multiprocessors;
  }
  if (even) { return; }
  ++counts.uneven;
  counts.m = p.n();  // as in row-major order
  counts.n = p.m();
  counts.k = p.k;
}

std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

constexpr std::int64_t kSplit = 1024;
constexpr std::uint32_t kSchemesThatRace =
    CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;

LtAlgorithm choose(const Problem& p, const LtPreference& preference) {
  LtAlgorithm chosen;
  chosen.a_alignment = preference.a_alignment;
  chosen.b_alignment = preference.b_alignment;
  chosen.c_alignment = preference.c_alignment;
  chosen.d_alignment = preference.d_alignment;
  chosen.vector_alignment = 256;
  if (has_vector(p)) { chosen.vector_alignment = alignment_of(p.operation.bias); }
  if (has_aux(p)) {
    chosen.vector_alignment = std::min(chosen.vector_alignment, alignment_of(p.operation.aux));
  }
  const std::int64_t splits = (p.k + kSplit - 1) / kSplit;
  const auto bytes = static_cast<std::uint64_t>(splits * p.m() * p.n()) * sizeof(float);
  if (splits > 1 && bytes <= preference.workspace_bytes &&
      (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0) {
    chosen.splits = static_cast<std::int32_t>(splits);
    chosen.workspace_bytes = bytes;
  }
  chosen.races = (preference.reductions & kSchemesThatRace) != 0;
  return chosen;
}

/// Element `i` of `data` as fp32.
float value_at(cudaDataType_t type, const void* data, std::int64_t i) {
  switch (type) {
    case CUDA_R_16BF:
      return static_cast<const tessera::bfloat16*>(data)[i].to_float();
    case CUDA_R_16F:
      return static_cast<const tessera::float16*>(data)[i].to_float();
    default:
      return static_cast<const float*>(data)[i];
  }
}

void put(cudaDataType_t type, void* data, std::int64_t i, float value) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<tessera::bfloat16*>(data)[i] = tessera::bfloat16::from_float(value);
      return;
    case CUDA_R_16F:
      static_cast<tessera::float16*>(data)[i] = tessera::float16::from_float(value);
      return;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

float rounded(cudaDataType_t type, float value) {
  switch (type) {
    case CUDA_R_16BF:
      return tessera::bfloat16::from_float(value).to_float();
    case CUDA_R_16F:
      return tessera::float16::from_float(value).to_float();
    default:
      return value;
  }
}

/// op(X) in fp32, `rows` x `columns` column-major without gaps.
std::vector<float> unpacked(const LtLayout& layout, cublasOperation_t transpose, const void* data) {
  const bool flipped = transpose == CUBLAS_OP_T;
  const auto rows = static_cast<std::int64_t>(flipped ? layout.columns : layout.rows);
  const auto columns = static_cast<std::int64_t>(flipped ? layout.rows : layout.columns);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = flipped ? r * layout.stride + c : c * layout.stride + r;
      values[static_cast<std::size_t>(c * rows + r)] = value_at(layout.type, data, at);
    }
  }
  return values;
}

/// The arguments of a call, kept until the stream reaches it.
struct Call {
  Problem problem;
  LtAlgorithm algorithm;
  float alpha = 1.0F;
  float beta = 0.0F;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  float* workspace = nullptr;
};

/// Adds to `sums` (m of them) the terms [first, last) of column j, in tiles.
void add_terms(const Call& call, const std::vector<float>& a, const std::vector<float>& b,
               std::int64_t j, std::int64_t first, std::int64_t last, float* sums) {
  const std::int64_t m = call.problem.m();
  const std::int64_t tile = (std::int64_t{4} << call.algorithm.place) *
                            std::min(call.algorithm.a_alignment, call.algorithm.b_alignment);
  std::vector<float> part(static_cast<std::size_t>(m));
  for (std::int64_t from = first; from < last; from += tile) {
    std::fill(part.begin(), part.end(), 0.0F);
    for (std::int64_t l = from; l < std::min(from + tile, last); ++l) {
      const float y = b[static_cast<std::size_t>(j * call.problem.k + l)];
      const float* const x = a.data() + l * m;
      for (std::int64_t i = 0; i < m; ++i) { part[static_cast<std::size_t>(i)] += x[i] * y; }
    }
    for (std::int64_t i = 0; i < m; ++i) { sums[i] += part[static_cast<std::size_t>(i)]; }
  }
}

/// Column j of op(A) op(B). The sum of its splits starts at `first_split`.
std::vector<float> column_of(const Call& call, const std::vector<float>& a,
                             const std::vector<float>& b, std::int64_t j, unsigned first_split) {
  const std::int64_t m = call.problem.m();
  const auto splits = static_cast<unsigned>(call.algorithm.splits);
  std::vector<float> sums(static_cast<std::size_t>(m));
  if (splits == 1) {
    add_terms(call, a, b, j, 0, call.problem.k, sums.data());
    return sums;
  }
  for (unsigned i = 0; i < splits; ++i) {
    const std::int64_t split = (first_split + i) % splits;
    float* const part = call.workspace + (split * call.problem.n() + j) * m;
    std::fill_n(part, m, 0.0F);
    add_terms(call, a, b, j, split * kSplit, std::min((split + 1) * kSplit, call.problem.k), part);
    for (std::int64_t r = 0; r < m; ++r) { sums[static_cast<std::size_t>(r)] += part[r]; }
  }
  return sums;
}

constexpr float kGeluScale = 0.79788456F;  // sqrt(2/pi)
constexpr float kGeluCubic = 0.044715F;

float gelu(float x) {
  return 0.5F * x * (1.0F + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x)));
}

float gelu_slope(float x) {
  const float tanh = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const float inner = kGeluScale * (1.0F + 3.0F * kGeluCubic * x * x);
  return 0.5F * (1.0F + tanh) + 0.5F * x * (1.0F - tanh * tanh) * inner;
}

/// Applies bias and GELU to the value of element (i, j) of D.
float finished(const Call& call, std::int64_t i, std::int64_t j, float value) {
  const LtOperation& operation = call.problem.operation;
  const cudaDataType_t type = call.problem.d.type;
  if (has_bias(call.problem)) { value += value_at(type, operation.bias, i); }
  if (!has_aux(call.problem)) { return value; }
  const std::int64_t at = j * operation.aux_stride + i;
  if (operation.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    return value * gelu_slope(value_at(type, operation.aux, at));
  }
  put(type, operation.aux, at, value);
  return gelu(value);
}

/// Like the library, overwrites the output and rounds to D's type.
void write_sums_of_rows(const Call& call, const std::vector<float>& a) {
  const std::int64_t m = call.problem.m();
  std::vector<float> sums(static_cast<std::size_t>(m));
  for (std::int64_t l = 0; l < call.problem.k; ++l) {
    for (std::int64_t i = 0; i < m; ++i) {
      sums[static_cast<std::size_t>(i)] += a[static_cast<std::size_t>(l * m + i)];
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    put(call.problem.d.type, call.problem.operation.bias, i, sums[static_cast<std::size_t>(i)]);
  }
}

void run(const Call& call) {
  const Problem& p = call.problem;
  const std::vector<float> a = unpacked(p.a, p.operation.transpose_a, call.a);
  const std::vector<float> b = unpacked(p.b, p.operation.transpose_b, call.b);
  static std::atomic<unsigned> races{0};
  const unsigned first_split = call.algorithm.races ? races++ : 0;
  if (sums_rows(p)) { write_sums_of_rows(call, a); }
  for (std::int64_t j = 0; j < p.n(); ++j) {
    const std::vector<float> sums = column_of(call, a, b, j, first_split);
    for (std::int64_t i = 0; i < p.m(); ++i) {
      float value = call.alpha * sums[static_cast<std::size_t>(i)];
      if (call.beta != 0.0F) {
        // Like the library, a product that is added to 16 bits is rounded to 16 bits first.
        value =
            rounded(p.d.type, value) + call.beta * value_at(p.c.type, call.c, j * p.c.stride + i);
      }
      put(p.d.type, call.d, j * p.d.stride + i, finished(call, i, j, value));
    }
  }
}

/// Whether all addresses have the alignments that the algorithm was selected for.
bool is_aligned(const Call& call) {
  const LtAlgorithm& need = call.algorithm;
  const auto lies = [](const void* data, std::uint32_t alignment) {
    return alignment_of(data) >= alignment;
  };
  const LtOperation& operation = call.problem.operation;
  return lies(call.a, need.a_alignment) && lies(call.b, need.b_alignment) &&
         lies(call.c, need.c_alignment) && lies(call.d, need.d_alignment) &&
         (!has_vector(call.problem) || lies(operation.bias, need.vector_alignment)) &&
         (!has_aux(call.problem) || lies(operation.aux, need.vector_alignment));
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  Problem problem;
  LtPreference limits;
  if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
  if (wanted <= 0 || !load(preference, limits)) { return CUBLAS_STATUS_INVALID_VALUE; }
  if (const cublasStatus_t status = read(problem, operation, a, b, c, d);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (!is_supported(problem)) { return CUBLAS_STATUS_NOT_SUPPORTED; }
  LtAlgorithm chosen = choose(problem, limits);
  *found = std::min(wanted, static_cast<int>(kAlgorithms));
  for (int i = 0; i < *found; ++i) {
    chosen.place = static_cast<std::uint32_t>(i);
    results[i] = {};
    store(&results[i].algo, chosen);
    results[i].workspaceSize = chosen.workspace_bytes;
    results[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  Problem problem;
  if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
  if (const cublasStatus_t status = read(problem, operation, a, b, c, d);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  LtAlgorithm given;
  if (!load(algorithm, given) || given.place >= kAlgorithms) { return CUBLAS_STATUS_INVALID_VALUE; }
  LtPreference all;
  all.workspace_bytes = UINT64_MAX;
  const LtAlgorithm possible = choose(problem, all);
  if (!is_supported(problem) || (given.splits != 1 && given.splits != possible.splits)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  result->workspaceSize = given.splits == 1 ? 0 : possible.workspace_bytes;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  LtAlgorithm given;
  if (!load(algorithm, given) || attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const std::uint32_t scheme = given.races        ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                               : given.splits > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                  : CUBLASLT_REDUCTION_SCHEME_NONE;
  if (bytes != sizeof(scheme)) { return CUBLAS_STATUS_INVALID_VALUE; }
  std::memcpy(value, &scheme, sizeof(scheme));
  *written = sizeof(scheme);
  return CUBLAS_STATUS_SUCCESS;
}

void emulated_cublaslt_let_race(std::uint64_t* algorithm) {
  cublasLtMatmulAlgo_t all{};
  std::memcpy(all.data, algorithm, sizeof(all.data));
  LtAlgorithm given;
  if (!load(&all, given)) { return; }
  given.races = true;
  store(&all, given);
  std::memcpy(algorithm, all.data, sizeof(all.data));
}

void emulated_cublaslt_counts(EmulatedCublasLtCounts* counts) {
  const std::scoped_lock lock{emulated_cuda::asked().mutex};
  *counts = emulated_cuda::asked().counts;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  Call call;
  if (failure_of("cublasLtMatmul") != cudaSuccess) { return CUBLAS_STATUS_EXECUTION_FAILED; }
  if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
  if (const cublasStatus_t status =
          read(call.problem, operation, a_layout, b_layout, c_layout, d_layout);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (!is_supported(call.problem)) { return CUBLAS_STATUS_NOT_SUPPORTED; }
  call.alpha = *static_cast<const float*>(alpha);
  call.beta = *static_cast<const float*>(beta);
  call.a = a;
  call.b = b;
  call.c = c;
  call.d = d;
  call.workspace = static_cast<float*>(workspace);
  if (!load(algorithm, call.algorithm) || workspace_bytes < call.algorithm.workspace_bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_aligned(call)) { return CUBLAS_STATUS_INVALID_VALUE; }
  count(call.problem, call.algorithm);
  const cudaError_t enqueued =
      enqueue_library_call(stream, "cublasLtMatmul", [call] { run(call); });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
