// The double of cuBLASLt: it computes products, and refuses the arguments that the library refuses.
#include <cublasLt.h>

#include <random>

#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test::cublaslt_test {
namespace {

/// A product C (m x n) = A (m x k) B (k x n) in fp32, column-major, with adjustable descriptors.
struct Product {
  Product(std::uint64_t m, std::uint64_t n, std::uint64_t k) {
    const auto stride = [](std::uint64_t rows) { return static_cast<std::int64_t>(rows); };
    (void)cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    (void)cublasLtMatrixLayoutInit(&a, CUDA_R_32F, m, k, stride(m));
    (void)cublasLtMatrixLayoutInit(&b, CUDA_R_32F, k, n, stride(k));
    (void)cublasLtMatrixLayoutInit(&c, CUDA_R_32F, m, n, stride(m));
    (void)cublasLtMatmulPreferenceInit(&preference);
    (void)cublasLtCreate(&handle);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  }
  ~Product() { (void)cublasLtDestroy(handle); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    (void)cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
  }
  template <class T>
  void tell(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    (void)cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value));
  }
  cublasStatus_t choose() {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &c, &c, &preference, 1,
                                          &chosen, &found);
  }
  template <class T>
  cublasStatus_t run(const T* x, const T* y, T* z, float beta, DeviceNumbers<char>& work,
                     std::size_t bytes, cudaStream_t stream) {
    const float alpha = 1.0F;
    return cublasLtMatmul(handle, &operation, &alpha, x, &a, y, &b, &beta, z, &c, z, &c,
                          &chosen.algo, work.data(), bytes, stream);
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{};
  cublasLtMatrixLayoutOpaque_t b{};
  cublasLtMatrixLayoutOpaque_t c{};
  cublasLtMatmulPreferenceOpaque_t preference{};
  cublasLtMatmulHeuristicResult_t chosen{};
};

template <class T>
void write(DeviceNumbers<T>& to, const std::vector<T>& values, const TestStream& stream) {
  check(cudaMemcpyAsync(to.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                        stream),
        "cudaMemcpyAsync");
  stream.wait();
}

TEST(EmulatedCublasLt, MultipliesColumnMajorMatrices) {
  const TestStream stream;
  DeviceNumbers<float> a{6}, b{6}, c{4};
  DeviceNumbers<char> work{256};
  write<float>(a, {1, 4, 2, 5, 3, 6}, stream);     // 1 2 3, 4 5 6
  write<float>(b, {1, 0, 10, 0, 1, 100}, stream);  // 1 0, 0 1, 10 100
  Product product{2, 2, 3};
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(product.run(a.data(), b.data(), c.data(), 0.0F, work, 256, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.read(stream), (std::vector<float>{31, 64, 302, 605}));
  ASSERT_EQ(product.run(a.data(), b.data(), c.data(), 1.0F, work, 256, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.read(stream), (std::vector<float>{62, 128, 604, 1210}));
}

// Eight bits hold 1 + 2^-7: the exact result. 1 + 2^-8, the product, lies halfway below it.
TEST(EmulatedCublasLt, RoundsAProductBeforeItIsAddedTo16Bits) {
  constexpr std::uint16_t one = 0x3F80, small = 0x3B80;  // 1 and 2^-8 in bf16
  const TestStream stream;
  DeviceNumbers<std::uint16_t> a{2}, b{2}, c{1};
  DeviceNumbers<char> work{256};
  write<std::uint16_t>(a, {one, small}, stream);
  write<std::uint16_t>(b, {one, one}, stream);
  write<std::uint16_t>(c, {small}, stream);
  Product product{1, 1, 2};
  for (auto* const layout : {&product.a, &product.b, &product.c}) {
    const bool is_b = layout == &product.b;
    (void)cublasLtMatrixLayoutInit(layout, CUDA_R_16BF, is_b ? 2 : 1, layout == &product.a ? 2 : 1,
                                   is_b ? 2 : 1);
  }
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(product.run(a.data(), b.data(), c.data(), 1.0F, work, 256, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.read(stream), std::vector<std::uint16_t>{one});
}

// D = A B + C, where C is another matrix and unchanged, and sums of A's rows that overwrite their
// output.
TEST(EmulatedCublasLt, AddsAnotherMatrixAndSumsRows) {
  const TestStream stream;
  DeviceNumbers<float> a{6}, b{6}, c{4}, d{4}, sums{2};
  DeviceNumbers<char> work{256};
  write<float>(a, {1, 4, 2, 5, 3, 6}, stream);     // 1 2 3, 4 5 6
  write<float>(b, {1, 0, 10, 0, 1, 100}, stream);  // 1 0, 0 1, 10 100
  write<float>(c, {1, 2, 3, 4}, stream);
  write<float>(sums, {7, 7}, stream);
  Product product{2, 2, 3};
  product.tell(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADA);
  product.tell(CUBLASLT_MATMUL_DESC_BIAS_POINTER, sums.data());
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  const float one = 1.0F;
  ASSERT_EQ(cublasLtMatmul(product.handle, &product.operation, &one, a.data(), &product.a, b.data(),
                           &product.b, &one, c.data(), &product.c, d.data(), &product.c,
                           &product.chosen.algo, work.data(), 256, stream),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.read(stream), (std::vector<float>{32, 66, 305, 609}));
  EXPECT_EQ(c.read(stream), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(sums.read(stream), (std::vector<float>{6, 15}));
}

TEST(EmulatedCublasLt, RefusesTypesThatTheLibraryCannotCombine) {
  Product product{8, 8, 8};
  (void)cublasLtMatrixLayoutInit(&product.a, CUDA_R_16BF, 8, 8, 8);
  (void)cublasLtMatrixLayoutInit(&product.b, CUDA_R_16BF, 8, 8, 8);
  EXPECT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  (void)cublasLtMatrixLayoutInit(&product.c, CUDA_R_16F, 8, 8, 8);
  EXPECT_EQ(product.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
  (void)cublasLtMatrixLayoutInit(&product.b, CUDA_R_16F, 8, 8, 8);
  EXPECT_EQ(product.choose(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(EmulatedCublasLt, RefusesWhatDoesNotFitTogether) {
  Product product{8, 8, 8};
  (void)cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 7, 8, 7);
  EXPECT_EQ(product.choose(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 8, 8, 7), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutInit(&product.b, CUDA_R_32F, 0, 8, 8), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(EmulatedCublasLt, RefusesMatricesWithAnotherLayoutThanDeclared) {
  const TestStream stream;
  DeviceNumbers<float> a{8}, b{8}, c{8};
  DeviceNumbers<char> work{256};
  Product product{2, 2, 2};
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(a.data() + 1, b.data(), c.data(), 0.0F, work, 256, stream),
            CUBLAS_STATUS_INVALID_VALUE);
  product.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{4});
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(a.data() + 1, b.data(), c.data(), 0.0F, work, 256, stream),
            CUBLAS_STATUS_SUCCESS);
}

TEST(EmulatedCublasLt, SumsThatRaceDifferFromRunToRun) {
  constexpr std::size_t k = 8192, bytes = 8 * sizeof(float);
  const TestStream stream;
  DeviceNumbers<float> a{k}, b{k}, c{1};
  DeviceNumbers<char> work{bytes};
  std::mt19937 generator{1};
  std::normal_distribution<float> normal;
  std::vector<float> values(k);
  for (float& value : values) { value = normal(generator); }
  write(a, values, stream);
  write(b, std::vector<float>(k, 0.1F), stream);
  Product product{1, 1, k};
  product.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{bytes});
  const auto differ = [&] {
    EXPECT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
    std::vector<std::vector<float>> results;
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(product.run(a.data(), b.data(), c.data(), 0.0F, work, bytes, stream),
                CUBLAS_STATUS_SUCCESS);
      results.push_back(c.read(stream));
    }
    return std::adjacent_find(results.begin(), results.end(), std::not_equal_to<>{}) !=
           results.end();
  };
  EXPECT_FALSE(differ());
  EXPECT_EQ(product.run(a.data(), b.data(), c.data(), 0.0F, work, bytes - 4, stream),
            CUBLAS_STATUS_INVALID_VALUE);
  product.prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
  EXPECT_TRUE(differ());
}

}  // namespace
}  // namespace emulated_cuda::test::cublaslt_test
