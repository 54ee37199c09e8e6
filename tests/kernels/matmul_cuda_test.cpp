// Parts of CUDA's matmul that tests/kernels/matmul_test.cpp does not cover: the workspace, cached
// plans, and failures of cuBLASLt.
#include <array>
#include <functional>

#include "cuda/emulation.hpp"
#include "device/cuda_module.hpp"
#include "emulated_cuda/controls.hpp"
#include "kernels/matmul/product_choices.hpp"
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

/// Uses an algorithm for one product on a stream until the end of its life.
class Recorded {
 public:
  Recorded(const MatMul& product, const ProductAlgorithm& algorithm, Stream stream)
      : stream_{stream}, before_{stream.state()->kernels()} {
    choices_.products[kind_of(product)] = {.algorithm = algorithm};
    device::StreamKernels now = before_;
    now.products = &choices_;
    stream_.state()->compute_with(now);
  }
  ~Recorded() { stream_.state()->compute_with(before_); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  Stream stream_;
  device::StreamKernels before_;
  ProductChoices choices_;
};

std::vector<ProductAlgorithm> offers_for(const MatMul& product, Stream stream) {
  std::vector<ProductAlgorithm> offers;
  device::CudaModule::get().function<OfferProductAlgorithms>("tessera_cublaslt_offers")(
      product, 8, stream, offers);
  return offers;
}

// Each algorithm that cuBLASLt offers for a product with sums of columns, and two kernels. cuBLASLt
// does not promise that every algorithm that it offers works.
TEST_P(MatMulOnCuda, SumsOfColumnsComeFromTheProductIfThatIsRecorded) {
  constexpr Size s{64, 192, 520};
  const Floats x = rounded(kBf16, random_floats(s.m * s.k, 1));
  const Floats dy = rounded(kBf16, random_floats(s.k * s.n, 2));
  const Floats c_before = random_floats(s.m * s.n, 3), before = random_floats(s.n, 4);
  const Floats ones(static_cast<std::size_t>(s.k), 1.0F);
  const exact_products::Exact product = exact(x, dy, s, 4.0);
  const exact_products::Exact columns = exact(ones, dy, {1, s.n, s.k}, 4.0);
  DeviceValues on_x{bench(), stored(x, Transpose::yes, s.m, s.k), kBf16};
  DeviceValues on_dy{bench(), dy, kBf16};
  MatMul p{on_x, on_dy, {}, s.m, s.n, s.k, Transpose::yes, Transpose::no};
  const auto computed = [&](Write write, Write sums_write, DType summed) {
    DeviceValues c{bench(), c_before, kFp32}, sums{bench(), rounded(summed, before), summed};
    p.c = c;
    p.bias_gradient = sums;
    p.write = write;
    p.bias_gradient_write = sums_write;
    table().matmul(p, stream());
    expect_near(c.floats(), write == Write::add ? added(product, c_before, s.k, 4.0) : product,
                kFp32);
    expect_near(
        sums.floats(),
        sums_write == Write::add ? added(columns, rounded(summed, before), s.k, 4.0) : columns,
        summed);
    return sums.floats();
  };
  const Floats apart = computed(Write::overwrite, Write::add, kFp32);
  EXPECT_EQ(computed(Write::add, Write::add, kFp32), apart);
  EXPECT_NE(computed(Write::add, Write::overwrite, kFp32), apart);
  DeviceValues any{bench(), s.m * s.n, kFp32}, any_sums{bench(), s.n, kFp32};
  MatMul tried = p;
  tried.c = any;
  tried.bias_gradient = any_sums;
  const std::vector<ProductAlgorithm> offers = offers_for(tried, stream());
  if (test::Emulation::there()) { ASSERT_FALSE(offers.empty()); }
  for (const ProductAlgorithm& offer : offers) {
    const Recorded recorded{tried, offer, stream()};
    try {
      table().matmul(tried, stream());
    } catch (const DeviceError&) { continue; }
    for (const Write sums_write : exact_products::kWrites) {
      for (const DType summed : {kFp32, kBf16}) {
        const Floats sums = computed(Write::add, sums_write, summed);
        EXPECT_EQ(computed(Write::overwrite, sums_write, summed), sums) << "a second time";
      }
    }
  }
  EXPECT_EQ(computed(Write::add, Write::add, kFp32), apart);
}

// Without a record the kernel for sums follows the product; with one, a kernel adds those of the
// product.
TEST_P(MatMulOnCuda, ARecordedProductWithSumsIsOneCall) {
  TESSERA_EMULATION_ONLY();
  constexpr Size s{24, 64, 40};
  DeviceValues x{bench(), random_floats(s.m * s.k, 1), kBf16};
  DeviceValues dy{bench(), random_floats(s.k * s.n, 2), kBf16},
      unaligned{bench(), s.k * s.n, kBf16, 1};
  DeviceValues c{bench(), filled(s.m * s.n, 0.0F), kFp32}, sums{bench(), filled(s.n, 0.0F), kFp32};
  MatMul p{x, dy, c, s.m, s.n, s.k, Transpose::yes, Transpose::no, Write::add};
  p.bias_gradient = sums;
  test::Emulation emulation;
  const auto launches_of = [&](const MatMul& product) {
    const std::uint64_t before = emulation.calls("cudaLaunchKernelEx");
    table().matmul(product, stream());
    return emulation.calls("cudaLaunchKernelEx") - before;
  };
  const std::uint64_t apart = launches_of(p);
  const Recorded recorded{p, offers_for(p, stream()).front(), stream()};
  EXPECT_EQ(launches_of(p), 1U);
  EXPECT_GT(apart, 1U);
  p.b = unaligned;
  EXPECT_EQ(launches_of(p), apart);
  stream().wait();
}

// Recorded algorithms were selected for aligned matrices. Whole numbers: every sum is exact.
TEST_P(MatMulOnCuda, ARecordedProductIsRightWhereverItsMatricesStart) {
  constexpr Size s{24, 64, 40};
  const auto whole = [](std::int64_t elems, std::size_t period) {
    Floats all = filled(elems, 0.0F);
    for (std::size_t i = 0; i < all.size(); ++i) { all[i] = static_cast<float>(i % period) - 2; }
    return all;
  };
  const Floats a = whole(s.m * s.k, 5), b = whole(s.k * s.n, 3), residual = whole(s.m * s.n, 7);
  Floats expected = filled(s.m * s.n, kNan);
  MatMul by_reference{a.data(), b.data(), expected.data(), s.m, s.n, s.k};
  by_reference.residual = residual.data();
  reference::matmul(by_reference, Stream{});
  const auto product = [&](const std::array<std::int64_t, 4>& offsets,
                           const std::function<void(const MatMul&)>& work) {
    DeviceValues on_a{bench(), a, kBf16, offsets[0]}, on_b{bench(), b, kBf16, offsets[1]};
    DeviceValues on_residual{bench(), residual, kBf16, offsets[2]};
    DeviceValues c{bench(), s.m * s.n, kBf16, offsets[3]};
    MatMul p{on_a, on_b, c, s.m, s.n, s.k};
    p.residual = on_residual;
    work(p);
    return c.floats();
  };
  std::vector<ProductAlgorithm> offers;
  (void)product({}, [&](const MatMul& p) { offers = offers_for(p, stream()); });
  ASSERT_FALSE(offers.empty());
  for (std::size_t unaligned = 0; unaligned < 4; ++unaligned) {
    std::array<std::int64_t, 4> offsets{};
    offsets[unaligned] = 1;
    EXPECT_EQ(product(offsets,
                      [&](const MatMul& p) {
                        const Recorded recorded{p, offers.front(), stream()};
                        table().matmul(p, stream());
                      }),
              expected)
        << "matrix " << unaligned;
  }
}

TEST_P(MatMulOnCuda, ARecordedAlgorithmWithoutAnOrderOfSumsIsRefused) {
  TESSERA_EMULATION_ONLY();
  DeviceValues a{bench(), Floats(64, 1.0F), kBf16}, b{bench(), Floats(64, 1.0F), kBf16};
  DeviceValues c{bench(), 64, kFp32};
  const MatMul p{a, b, c, 8, 8, 8};
  ProductAlgorithm algorithm = offers_for(p, stream()).front();
  device::CudaModule::get().function<void(std::uint64_t*)>("emulated_cublaslt_let_race")(
      algorithm.data());
  const Recorded recorded{p, algorithm, stream()};
  EXPECT_THROW(table().matmul(p, stream()), ConfigError);
}

TEST_P(MatMulOnCuda, ProductsThatAreRoundedThroughTheWorkspaceSpareMultiprocessors) {
  TESSERA_EMULATION_ONLY();
  const auto counts = [] {
    EmulatedCublasLtCounts now{};
    device::CudaModule::get().function<void(EmulatedCublasLtCounts*)>("emulated_cublaslt_counts")(
        &now);
    return now;
  };
  DeviceValues a{bench(), Floats(64, 1.0F), kBf16}, b{bench(), Floats(64, 1.0F), kBf16};
  DeviceValues c{bench(), Floats(64, 1.0F), kBf16};
  MatMul p{a, b, c, 8, 8, 8};
  p.write = Write::add;
  const device::StreamKernels all = stream().state()->kernels();
  device::StreamKernels some = all;
  some.multiprocessors = 3;
  const EmulatedCublasLtCounts before = counts();
  stream().state()->compute_with(some);
  table().matmul(p, stream());
  stream().state()->compute_with(all);
  EXPECT_EQ(c.floats(), Floats(64, 9.0F));
  EXPECT_EQ(counts().limited - before.limited, 1U);
  EXPECT_EQ(counts().multiprocessors, 3);
}

// The real cuBLASLt may have no algorithm for some of the others.
TEST_P(MatMulOnCuda, NoAlgorithmIsOfferedForAProductThatTakesSeveralCalls) {
  TESSERA_EMULATION_ONLY();
  constexpr Size s{24, 64, 40};
  DeviceValues a{bench(), s.m * s.k, kBf16}, b{bench(), s.k * s.n, kBf16};
  DeviceValues c{bench(), s.m * s.n, kBf16}, wide{bench(), s.m * s.n, kFp32};
  DeviceValues vector{bench(), s.n, kBf16}, unaligned{bench(), s.n, kBf16, 1};
  DeviceValues sums{bench(), s.n, kFp32};
  const auto offered = [&](auto&& change) {
    MatMul p{a, b, c, s.m, s.n, s.k};
    change(p);
    return !offers_for(p, stream()).empty();
  };
  EXPECT_TRUE(offered([](MatMul&) {}));
  EXPECT_TRUE(offered([&](MatMul& p) { p.bias = vector; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.bias = unaligned; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.bias = sums; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.c = wide, p.bias = sums; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.write = Write::add; }));
  EXPECT_TRUE(offered([&](MatMul& p) { p.c = wide, p.write = Write::add; }));
  EXPECT_TRUE(offered([&](MatMul& p) { p.c = wide, p.bias_gradient = sums; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.bias_gradient = sums; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.c = {c.values().data, kFp16}; }));
  EXPECT_TRUE(offered([&](MatMul& p) { p.epilogue = Epilogue::gelu, p.pre_gelu = a; }));
  EXPECT_FALSE(offered([&](MatMul& p) { p.epilogue = Epilogue::gelu, p.pre_gelu = a, p.n = 60; }));
  EXPECT_FALSE(
      offered([&](MatMul& p) { p.c = wide, p.epilogue = Epilogue::gelu, p.pre_gelu = wide; }));
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
