// Parts of CUDA's matmul that tests/kernels/matmul_test.cpp does not cover: the workspace, cached
// plans, and failures of cuBLASLt.
#include "cuda/emulation.hpp"
#include "kernels/matmul_exact.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::matmul_cuda_test {
namespace {

using exact_products::added;
using exact_products::exact;
using exact_products::expect_near;
using exact_products::Size;
using exact_products::stored;

constexpr DType kFp32 = DType::fp32, kBf16 = DType::bf16, kFp16 = DType::fp16;

class MatMulOnCuda : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, MatMulOnCuda, cuda_alone(), backend_name);

// 66 rows of 65,536 numbers are rounded through the workspace 64 rows at a time.
TEST_P(MatMulOnCuda, ResultsThatAreRoundedThroughTheWorkspaceComeInPieces) {
  constexpr Size s{66, 65'536, 2};
  const Floats a = rounded(kFp16, random_floats(s.m * s.k, 6));
  const Floats b = rounded(kFp16, random_floats(s.k * s.n, 7));
  const Floats before = filled(s.m * s.n, 2.5F);
  const exact_products::Exact product = exact(a, b, s, 4.0);
  DeviceValues on_b{bench(), b, kFp16};
  for (const Transpose ta : exact_products::kTransposes) {
    DeviceValues on_a{bench(), stored(a, ta, s.m, s.k), kFp16, 1};
    for (const Write write : exact_products::kWrites) {
      DeviceValues on_c{bench(), before, kBf16};
      table().matmul({on_a, on_b, on_c, s.m, s.n, s.k, ta, Transpose::no, write}, stream());
      expect_near(on_c.floats(), write == Write::add ? added(product, before, s.k, 4.0) : product,
                  kBf16);
    }
  }
}

// The stream caches 256 plans.
TEST_P(MatMulOnCuda, EvictedProductsAreStillRight) {
  constexpr std::int64_t most = 300;
  DeviceArray<float> a{bench(), filled(2, 1.0F)}, b{bench(), filled(2 * most, 2.0F)};
  DeviceArray<float> c{bench(), most};
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t n = 1; n <= most; ++n) {
      table().matmul({a.data(), b.data(), c.data(), 1, n, 2}, stream());
    }
    ASSERT_EQ(c.read(), filled(most, 4.0F));
    c.poison();
  }
}

TEST_P(MatMulOnCuda, AFailureNamesTheProduct) {
  TESSERA_EMULATION_ONLY();
  DeviceValues a{bench(), 15, kBf16}, b{bench(), 20, kBf16}, c{bench(), 12, kFp32};
  test::Emulation emulation;
  emulation.fail("cublasLtMatmul", 1, test::Emulation::kInvalidValue);
  try {
    table().matmul({a, b, c, 3, 4, 5}, stream());
    FAIL() << "a failure of cuBLASLt goes unnoticed";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string{error.what()}.find("3 x 4 x 5 (bf16 x bf16 -> fp32)"), std::string::npos)
        << error.what();
  }
}

// A block's residual stream: no separate kernel adds.
TEST_P(MatMulOnCuda, ABiasAndAResidualAreAddedInTheCallThatMultiplies) {
  TESSERA_EMULATION_ONLY();
  constexpr Size s{33, 64, 40};
  const Floats before = rounded(kBf16, random_floats(s.m * s.n, 4));
  DeviceValues a{bench(), random_floats(s.m * s.k, 1), kBf16};
  DeviceValues b{bench(), random_floats(s.k * s.n, 2), kBf16};
  DeviceValues bias{bench(), random_floats(s.n, 3), kBf16};
  DeviceValues aligned{bench(), before, kBf16}, unaligned{bench(), before, kBf16, 1};
  DeviceValues c{bench(), s.m * s.n, kBf16};
  MatMul p{a, b, c, s.m, s.n, s.k};
  p.bias = bias;
  test::Emulation emulation;
  const std::uint64_t launches = emulation.calls("cudaLaunchKernelEx");
  for (DeviceValues* const residual : {&aligned, &unaligned}) {
    p.residual = *residual;
    table().matmul(p, stream());
  }
  EXPECT_EQ(emulation.calls("cudaLaunchKernelEx"), launches);
  stream().wait();
}

// One kernel adds them to the bias gradient.
TEST_P(MatMulOnCuda, SumsOfColumnsComeFromTheCallThatMultiplies) {
  TESSERA_EMULATION_ONLY();
  constexpr Size s{24, 64, 40};
  DeviceValues x{bench(), random_floats(s.m * s.k, 1), kBf16};
  DeviceValues dy{bench(), random_floats(s.k * s.n, 2), kBf16};
  DeviceValues c{bench(), filled(s.m * s.n, 0.0F), kFp32}, sums{bench(), filled(s.n, 0.0F), kFp32};
  MatMul p{x, dy, c, s.m, s.n, s.k, Transpose::yes, Transpose::no, Write::add};
  p.bias_gradient = sums;
  test::Emulation emulation;
  const std::uint64_t launches = emulation.calls("cudaLaunchKernelEx");
  table().matmul(p, stream());
  EXPECT_EQ(emulation.calls("cudaLaunchKernelEx"), launches + 1);
  stream().wait();
}

TEST_P(MatMulOnCuda, RefusesWhatItCannotMultiply) {
  DeviceValues fp32{bench(), 4, kFp32}, bf16{bench(), 4, kBf16};
  EXPECT_THROW(table().matmul({fp32, bf16, fp32, 1, 1, 1}, stream()), ContractError);
  const OwnedStream bare = device().make_compute_stream();
  EXPECT_THROW(table().matmul({fp32, fp32, fp32, 1, 1, 1}, bare.get()), ContractError);
}

}  // namespace
}  // namespace tessera::kernels::matmul_cuda_test
