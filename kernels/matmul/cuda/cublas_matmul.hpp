#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda/cuda_stream.hpp"
#include "kernels/matmul/product_choices.hpp"
#include "kernels/support/lru_cache.hpp"

namespace tessera::kernels::cuda {

/// Whether one call of cuBLASLt may compute `product` with its bias, epilogue and residual:
///
///   A, B      of one dtype; C of that dtype or fp32
///   add       with C of fp32: what it adds to 16 bits cuBLASLt rounds twice, before and after
///   bias      with C of the dtype of A and B, the bias too, at a multiple of 16 bytes
///   GELU      with all of one dtype of 16 bits, n a multiple of 8, `pre_gelu` at a multiple of 16
///             bytes; how exact cuBLASLt's is in fp32 is not documented
///   residual  always: it may be rounded twice, as it is by separate kernels
///   sums      of columns, with C of fp32: cuBLASLt writes them in C's dtype
[[nodiscard]] bool is_one_call(const MatMul& product) noexcept;

/// A product as it is passed to cuBLASLt. No size is zero.
struct Gemm {
  MatMul product;  ///< is_one_call holds; `bias_gradient` is fp32 and overwritten
  device::StreamWorkspace workspace;
  const ProductChoices* choices = nullptr;  ///< null: the heuristic's first; the same in every call
  int multiprocessors = 0;                  ///< that it may use; 0: all
};

/// The workspace of products. Its size is the same on every stream of a rank, because the choice of
/// an algorithm depends on it.
[[nodiscard]] device::StreamWorkspace product_workspace(Stream stream);

/// `product`, for which is_one_call holds, with the stream's workspace and choices. Sums of columns
/// go to the start of the workspace, where `Gemm::product.bias_gradient` points.
[[nodiscard]] Gemm gemm_of(const MatMul& product, Stream stream);

/// Returns the algorithm that was recorded for `gemm`. Null: none was, or a matrix does not start
/// at a multiple of 16 bytes.
[[nodiscard]] const ProductAlgorithm* recorded(const Gemm& gemm) noexcept;

/// cuBLASLt on one stream: its handle, and the plans of the last products.
///
/// An algorithm is one of the stream's choices, or is chosen by cuBLASLt's heuristic, given the
/// contents of GemmKey and nothing else. Alignments count only up to 16 bytes (the most that its
/// kernels need, and all buffers have), so a matrix may move. Sums split over k are added in fp32
/// in the workspace, in a fixed order; schemes that add into C in any order are ruled out.
class CublasLt final : public tessera::cuda::StreamExtension {
 public:
  CublasLt();
  ~CublasLt() override;

  /// Enqueues `gemm`. Returns false and enqueues nothing if cuBLASLt has no algorithm for it.
  /// ConfigError if a choice is not an algorithm for it.
  [[nodiscard]] bool multiply(const Gemm& gemm, cudaStream_t stream);
  /// Returns up to `most` algorithms, the heuristic's first choice first.
  [[nodiscard]] std::vector<ProductAlgorithm> offers(const Gemm& gemm, int most) const;

 private:
  static constexpr std::size_t kMostPlans = 256;
  struct GemmKey {
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
    std::int64_t a_stride;
    std::int64_t c_stride;
    std::size_t workspace_bytes;
    int multiprocessors;
    DType factors;
    DType result;
    Transpose transpose_a;
    Transpose transpose_b;
    cublasLtEpilogue_t epilogue;
    std::uint32_t a_alignment;
    std::uint32_t b_alignment;
    std::uint32_t c_alignment;
    std::uint32_t added_alignment;  ///< of the matrix that is added: the residual, or C
    auto operator<=>(const GemmKey&) const = default;
  };
  /// A product in cuBLASLt's terms. Our rows are its columns, so it computes the transpose of C,
  /// with B first.
  struct Plan {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first;
    cublasLtMatrixLayoutOpaque_t second;
    cublasLtMatrixLayoutOpaque_t result;
    cublasLtMatmulAlgo_t algorithm;
  };

  [[nodiscard]] static GemmKey key_of(const Gemm& gemm) noexcept;
  /// Returns a plan without its algorithm.
  [[nodiscard]] static Plan describe(const GemmKey& key);
  [[nodiscard]] Plan* plan_of(const Gemm& gemm);
  [[nodiscard]] std::optional<Plan> make_plan(const Gemm& gemm, const GemmKey& key) const;
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> heuristic(const GemmKey& key, Plan& plan,
                                                            int most) const;
  void take(const ProductAlgorithm& chosen, const Gemm& gemm, Plan& plan) const;

  cublasLtHandle_t handle_ = nullptr;
  LruCache<GemmKey, std::optional<Plan>> plans_{kMostPlans};
};

/// "3 x 4 x 5 (bf16 x bf16 -> fp32)".
[[nodiscard]] std::string name_of(const MatMul& product);

}  // namespace tessera::kernels::cuda
