#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

// Contents of the library's opaque structures in the double of cuBLASLt.
namespace emulated_cuda {

struct LtLayout {
  static constexpr std::uint64_t kMark = 0x4c61796f7574;  // "Layout"
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t stride = 0;  ///< elements from one column to the next
};

struct LtOperation {
  static constexpr std::uint64_t kMark = 0x4f7065726174;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  ///< an output if it is a bias gradient
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
  std::int32_t multiprocessors = 0;  ///< to use; 0: all
};

struct LtPreference {
  static constexpr std::uint64_t kMark = 0x507265666572;
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t a_alignment = 256;
  std::uint32_t b_alignment = 256;
  std::uint32_t c_alignment = 256;
  std::uint32_t d_alignment = 256;
};

/// The order of summation of a product, and the memory that it takes.
struct LtAlgorithm {
  static constexpr std::uint64_t kMark = 0x416c676f7269;
  std::uint32_t a_alignment = 0;
  std::uint32_t b_alignment = 0;
  std::uint32_t c_alignment = 0;
  std::uint32_t d_alignment = 0;
  std::uint32_t vector_alignment = 0;  ///< of bias and aux
  std::int32_t splits = 1;             ///< parts of k, with their sums in the workspace
  bool races = false;                  ///< splits are added in order of completion
  std::uint32_t place = 0;             ///< among those that the heuristic offers
  std::uint64_t workspace_bytes = 0;
};

/// Stores `value` in the opaque structure, with a mark of its type.
template <class T, class Opaque>
void store(Opaque* to, const T& value) {
  static_assert(sizeof(std::uint64_t) + sizeof(T) <= sizeof(Opaque));
  static_assert(std::is_trivially_copyable_v<T>);
  auto* const bytes = reinterpret_cast<char*>(to->data);
  std::memcpy(bytes, &T::kMark, sizeof(T::kMark));
  std::memcpy(bytes + sizeof(T::kMark), &value, sizeof(T));
}

/// False if `from` holds no T.
template <class T, class Opaque>
[[nodiscard]] bool load(const Opaque* from, T& value) {
  if (from == nullptr || from->data[0] != T::kMark) { return false; }
  std::memcpy(&value, reinterpret_cast<const char*>(from->data) + sizeof(T::kMark), sizeof(T));
  return true;
}

}  // namespace emulated_cuda
