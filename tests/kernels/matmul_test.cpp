#include "kernels/matmul/matmul.hpp"

#include <numbers>
#include <utility>

#include "kernels/matmul/matmul_strided.hpp"
#include "kernels/matmul_exact.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::matmul_test {
namespace {

using exact_products::added;
using exact_products::Exact;
using exact_products::exact;
using exact_products::expect_near;
using exact_products::kTransposes;
using exact_products::kWrites;
using exact_products::Size;
using exact_products::stored;

constexpr DType kFp32 = DType::fp32;
constexpr DType kBf16 = DType::bf16;
constexpr Size kProducts[] = {
    {0, 3, 4},    {3, 0, 4},   {3, 4, 0},     {1, 1, 1},     {2, 3, 4},     {1, 65, 33},
    {65, 1, 33},  {65, 33, 1}, {7, 8, 9},     {16, 16, 16},  {16, 24, 48},  {31, 33, 5},
    {64, 64, 64}, {7, 8, 900}, {50, 70, 129}, {3, 300, 700}, {40, 56, 2100}};

Floats random_values(DType dtype, std::int64_t elems, unsigned seed) {
  return rounded(dtype, random_floats(elems, seed));
}

TEST(MatMulReference, ByHand) {
  const Floats a{1, 2, 3, 4, 5, 6};     // 2 x 3, or its transpose stored 2 x 3
  const Floats b{1, 0, 0, 1, 10, 100};  // 3 x 2
  Floats c(4, kNan);
  MatMul product{a.data(), b.data(), c.data(), 2, 2, 3};
  reference::matmul(product, Stream{});
  EXPECT_EQ(c, (Floats{31, 302, 64, 605}));
  product.write = Write::add;
  reference::matmul(product, Stream{});
  EXPECT_EQ(c, (Floats{62, 604, 128, 1210}));

  Floats wide(9, kNan);  // A^T (3 x 2) times B^T (2 x 3)
  reference::matmul({a.data(), b.data(), wide.data(), 3, 3, 2, Transpose::yes, Transpose::yes},
                    Stream{});
  EXPECT_EQ(wide, (Floats{1, 4, 410, 2, 5, 520, 3, 6, 630}));
}

TEST(MatMulReference, BiasAndGeluByHand) {
  const Floats a{1, 2}, b{3, 4}, bias{-11, 1};
  Floats z(2, kNan), c(2, kNan);
  MatMul product{a.data(), b.data(), c.data(), 1, 2, 1};
  product.bias = bias.data();
  reference::matmul(product, Stream{});
  EXPECT_EQ(c, (Floats{-8, 5}));
  product.epilogue = Epilogue::gelu;
  product.pre_gelu = z.data();
  reference::matmul(product, Stream{});
  EXPECT_EQ(z, (Floats{-8, 5}));
  // 1 + tanh is 0 or 2 to 2 u there; its roundings are multiplied by 8 / 2 and by 5 / 2.
  EXPECT_NEAR(c[0], 0.0, test::roundings(2, 4.0));
  EXPECT_NEAR(c[1], 5.0, test::roundings(1, 5.0) + test::roundings(4, 5.0));

  z = {0, 20};  // slopes 1/2 and 1
  product.bias = {};
  product.epilogue = Epilogue::gelu_gradient;
  reference::matmul(product, Stream{});
  EXPECT_EQ(c, (Floats{1.5F, 4}));
}

class MatMulKernels : public BackendTest {
 protected:
  /// Tensor cores truncate what fp32 does not hold, for all terms that they add at once: four times
  /// the error of a sum of rounded terms.
  static double factor(DType dtype) { return on_cuda() && size_of(dtype) == 2 ? 4.0 : 1.0; }

  /// Rows of A and C have gaps.
  void expect_gaps(DType dtype, DType result, const Size& s, Transpose ta, Write write) {
    const Floats a = random_values(dtype, s.m * s.k, 1), b = random_values(dtype, s.k * s.n, 2);
    const Floats c = random_values(result, s.m * s.n, 3);
    const std::int64_t a_columns = ta == Transpose::yes ? s.m : s.k;
    const std::int64_t a_stride = round_up<std::int64_t>(a_columns, 64);
    const std::int64_t c_stride = round_up<std::int64_t>(s.n, 64);
    DeviceValues on_a{bench(), with_gaps(stored(a, ta, s.m, s.k), a_columns, a_stride), dtype};
    DeviceValues on_b{bench(), b, dtype};
    DeviceValues on_c{bench(), with_gaps(c, s.n, c_stride), result};
    MatMul p{on_a, on_b, on_c, s.m, s.n, s.k, ta, Transpose::no, write};
    p.a_stride = a_stride;
    p.c_stride = c_stride;
    table().matmul(p, stream());
    const Exact product = exact(a, b, s, factor(dtype));
    const Floats all = on_c.floats();
    expect_near(without_gaps(all, s.n, c_stride),
                write == Write::add ? added(product, c, s.k, factor(dtype)) : product, result);
    EXPECT_EQ(std::count_if(all.begin(), all.end(), [](float x) { return std::isnan(x); }),
              (c_stride - s.n) * s.m);
  }

  /// A product of `dtype` factors into `result`; array offsets derive from `offset`.
  void expect_product(DType dtype, DType result, const Size& s, std::int64_t offset) {
    const Floats a = random_values(dtype, s.m * s.k, 1), b = random_values(dtype, s.k * s.n, 2);
    const Floats c = random_values(result, s.m * s.n, 3);
    const Exact product = exact(a, b, s, factor(dtype));
    for (const Transpose ta : kTransposes) {
      for (const Transpose tb : kTransposes) {
        DeviceValues on_a{bench(), stored(a, ta, s.m, s.k), dtype, offset};
        DeviceValues on_b{bench(), stored(b, tb, s.k, s.n), dtype, 3 * offset};
        for (const Write write : kWrites) {
          SCOPED_TRACE(testing::Message()
                       << s.m << " x " << s.n << " x " << s.k << ' ' << to_string(dtype) << " -> "
                       << to_string(result) << " transposed " << int(ta) << int(tb) << " write "
                       << int(write) << " offset " << offset);
          const bool adds = write == Write::add;
          DeviceValues on_c{bench(), adds ? c : filled(s.m * s.n, kNan), result, 5 * offset};
          table().matmul({on_a, on_b, on_c, s.m, s.n, s.k, ta, tb, write}, stream());
          expect_near(on_c.floats(), adds ? added(product, c, s.k, factor(dtype)) : product,
                      result);
          if (HasFatalFailure()) { return; }
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, MatMulKernels, backends(), backend_name);

TEST_P(MatMulKernels, AreTheProductInFp64WithinTheBoundOfItsRoundings) {
  for (const DType dtype : kValueDTypes) {
    for (const DType result : kValueDTypes) {
      for (const Size& size : kProducts) {
        for (const std::int64_t offset : {0, 1}) {
          expect_product(dtype, result, size, offset);
          if (HasFatalFailure()) { return; }
        }
      }
    }
  }
}

// Whole numbers: every product and sum is exact, whatever the order.
TEST_P(MatMulKernels, AreExactOnWholeNumbers) {
  std::mt19937 generator{1};
  std::uniform_int_distribution<int> uniform{-8, 8};
  Floats a(200 * 300), b(300 * 100);
  for (float& value : a) { value = static_cast<float>(uniform(generator)); }
  for (float& value : b) { value = static_cast<float>(uniform(generator)); }
  Floats expected = filled(200 * 100, kNan);
  reference::matmul({a.data(), b.data(), expected.data(), 200, 100, 300}, Stream{});
  DeviceArray<float> on_a{bench(), a}, on_b{bench(), b}, c{bench(), 200 * 100};
  table().matmul({on_a.data(), on_b.data(), c.data(), 200, 100, 300}, stream());
  EXPECT_EQ(c.read(), expected);
}

// A matrix's address differs between strategies (slots, arenas); on CUDA all addresses are
// multiples of 16 bytes.
TEST_P(MatMulKernels, BitsAreTheSameInEveryRunAndAtEveryAddress) {
  const auto offsets = on_cuda() ? std::vector<std::int64_t>{0, 8, 16, 64}
                                 : std::vector<std::int64_t>{1, 2, 3, 5, 8, 13, 16, 64, 128};
  std::vector<Size> sizes(std::begin(kProducts), std::end(kProducts));
  if (!TESSERA_SANITIZED) { sizes.push_back({64, 128, 4096}); }
  for (const DType dtype : kValueDTypes) {
    for (const Size& s : sizes) {
      for (const Transpose ta : kTransposes) {
        for (const Transpose tb : kTransposes) {
          if (s.k > 1000 && (ta == Transpose::yes || tb == Transpose::yes)) { continue; }
          const Floats a = random_floats(s.m * s.k, 4), b = random_floats(s.k * s.n, 5);
          const Floats before = random_floats(s.m * s.n, 6);
          const auto product_at = [&](std::int64_t at_a, std::int64_t at_b, std::int64_t at_c) {
            DeviceValues on_a{bench(), a, dtype, at_a}, on_b{bench(), b, dtype, at_b};
            DeviceValues c{bench(), before, kFp32, at_c};
            table().matmul({on_a, on_b, c, s.m, s.n, s.k, ta, tb, Write::add}, stream());
            return c.read();
          };
          const Bytes expected = product_at(0, 0, 0);
          for (const std::int64_t offset : offsets) {
            const Bytes bits = on_cuda()
                                   ? product_at(offset, 3 * offset, 5 * offset)
                                   : product_at(offset, 3 * offset % 17, (5 * offset + 1) % 17);
            ASSERT_EQ(bits, expected) << to_string(dtype) << " " << s.m << " x " << s.n << " x "
                                      << s.k << " offset " << offset;
          }
        }
      }
    }
  }
}

// GPT's logits are laid out like this: the gaps of A and C are full of NaN, and C's stay so.
TEST_P(MatMulKernels, GapsBetweenRowsAreNeitherReadNorWritten) {
  for (const DType dtype : kValueDTypes) {
    for (const DType result : kValueDTypes) {
      for (const Size& s : {Size{5, 3, 4}, Size{66, 101, 70}}) {
        for (const Transpose ta : kTransposes) {
          for (const Write write : kWrites) {
            SCOPED_TRACE(testing::Message()
                         << s.m << " x " << s.n << " x " << s.k << ' ' << to_string(dtype) << " -> "
                         << to_string(result) << " transposed " << int(ta) << " write "
                         << int(write));
            expect_gaps(dtype, result, s, ta, write);
            if (HasFatalFailure()) { return; }
          }
        }
      }
    }
  }
}

// Sixteen bits hold the exact result. The product alone lies on a tie and would be rounded down.
TEST_P(MatMulKernels, AddRoundsOnce) {
  constexpr std::int64_t size = 16;
  for (const auto& [dtype, half_step] :
       {std::pair{kBf16, 0x1p-8F}, std::pair{DType::fp16, 0x1p-11F}}) {
    Floats a(size * 2, half_step);
    for (std::size_t i = 0; i < a.size(); i += 2) { a[i] = 1.0F; }  // each row: 1 + half a step
    DeviceValues on_a{bench(), a, dtype}, on_b{bench(), filled(2 * size, 1.0F), dtype};
    DeviceValues c{bench(), filled(size * size, half_step), dtype};
    MatMul p{on_a, on_b, c, size, size, 2};
    p.write = Write::add;
    table().matmul(p, stream());
    EXPECT_EQ(c.floats(), filled(size * size, 1.0F + 2 * half_step)) << to_string(dtype);
  }
}

TEST_P(MatMulKernels, AnEmptySumLeavesGapsAsTheyAre) {
  DeviceValues c{bench(), Floats(10, 7.0F), kBf16};
  MatMul p{{nullptr, kBf16}, {nullptr, kBf16}, c, 2, 3, 0};
  p.c_stride = 5;
  table().matmul(p, stream());
  EXPECT_EQ(c.floats(), (Floats{0, 0, 0, 7, 7, 0, 0, 0, 7, 7}));
}

TEST_P(MatMulKernels, EmptySumsOverwriteWithZeroAndAddNothing) {
  for (const DType factors : kValueDTypes) {
    for (const DType dtype : kValueDTypes) {
      DeviceValues c{bench(), 6, dtype, 1}, bias{bench(), Floats{1, 2, 3}, dtype};
      MatMul p{{nullptr, factors}, {nullptr, factors}, c, 2, 3, 0};
      table().matmul(p, stream());
      EXPECT_EQ(c.floats(), Floats(6, 0.0F));
      p.bias = bias;
      table().matmul(p, stream());
      EXPECT_EQ(c.floats(), (Floats{1, 2, 3, 1, 2, 3}));
      p.bias = {};
      p.write = Write::add;
      table().matmul(p, stream());
      p.k = 4;
      p.m = 0;
      table().matmul(p, stream());
      p.m = 2;
      p.n = 0;
      table().matmul(p, stream());
      EXPECT_EQ(c.floats(), (Floats{1, 2, 3, 1, 2, 3}));
    }
  }
}

// 1 + 2^-20 times 1: TF32 has ten bits behind the point.
TEST_P(MatMulKernels, MultiplyFp32InFp32) {
  constexpr std::int64_t size = 64;
  Floats a(size * size, 0.0F);
  for (std::int64_t i = 0; i < size; ++i) { a[static_cast<std::size_t>(i * size + i)] = 1.0F; }
  const Floats b(size * size, 1.0F + 0x1p-20F);
  DeviceArray<float> on_a{bench(), a}, on_b{bench(), b}, c{bench(), size * size};
  table().matmul({on_a.data(), on_b.data(), c.data(), size, size, size}, stream());
  EXPECT_EQ(c.read(), b);
}

/// GELU in its tanh form, and its derivative.
double gelu(double x) {
  const double scale = std::sqrt(2.0 / std::numbers::pi);
  return 0.5 * x * (1.0 + std::tanh(scale * (x + 0.044715 * x * x * x)));
}
double slope(double x) {
  const double scale = std::sqrt(2.0 / std::numbers::pi);
  const double tanh = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + tanh) +
         0.5 * x * (1.0 - tanh * tanh) * scale * (1.0 + 3.0 * 0.044715 * x * x);
}

/// The product plus bias; the product may have been rounded to `dtype` first.
Exact with_bias(Exact product, const Floats& bias, DType dtype) {
  for (std::size_t i = 0; i < product.sum.size(); ++i) {
    product.bound[i] += rounding(dtype, std::abs(product.sum[i]) + product.bound[i]);
    product.sum[i] += static_cast<double>(bias[i % bias.size()]);
    product.bound[i] += rounding(kFp32, product.sum[i]);
  }
  return product;
}

/// GELU of `z`, with |f'| <= 1.13. In 16 bits tanh has an error of at most 2^-10 (the hardware's),
/// and z may be rounded to `dtype` first.
Exact with_gelu(Exact z, DType dtype) {
  for (std::size_t i = 0; i < z.sum.size(); ++i) {
    const double size = std::abs(z.sum[i]) + z.bound[i];
    const double tanh = dtype == kFp32 ? 0x1p-21 : 0x1p-10;
    z.bound[i] = 1.13 * (z.bound[i] + rounding(dtype, size)) + tanh * size;
    z.sum[i] = gelu(z.sum[i]);
  }
  return z;
}

/// `product` times the slope of GELU at `x`.
Exact with_slope(Exact product, const Floats& x, DType dtype) {
  for (std::size_t i = 0; i < product.sum.size(); ++i) {
    const double size = std::abs(product.sum[i]) + product.bound[i];
    const double tanh = dtype == kFp32 ? 0x1p-20 : 0x1p-9;
    const double at = x[i];
    product.bound[i] =
        1.13 * (product.bound[i] + rounding(dtype, size)) + tanh * (1.0 + std::abs(at)) * size;
    product.sum[i] *= slope(at);
  }
  return product;
}

/// Cases that cuBLASLt fuses (n a multiple of 8, aligned) and cases that it does not.
struct EpilogueCase {
  Size size;
  std::int64_t offset;
};
constexpr EpilogueCase kEpilogues[] = {
    {{16, 24, 48}, 0}, {{33, 64, 100}, 0}, {{33, 64, 100}, 1}, {{31, 33, 65}, 0}, {{1, 8, 1}, 0}};

TEST_P(MatMulKernels, GeluKeepsItsInput) {
  for (const DType dtype : kValueDTypes) {
    for (const auto& [s, offset] : kEpilogues) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " n " << s.n << " offset " << offset);
      const Floats a = random_values(dtype, s.m * s.k, 1), b = random_values(dtype, s.k * s.n, 2);
      const Exact product = exact(a, b, s, factor(dtype));
      for (const bool biased : {false, true}) {
        const Floats bias = biased ? random_values(dtype, s.n, 3) : Floats(std::size_t(s.n), 0.0F);
        DeviceValues on_a{bench(), a, dtype}, on_b{bench(), b, dtype};
        DeviceValues on_bias{bench(), bias, dtype, offset};
        DeviceValues z{bench(), s.m * s.n, dtype, offset}, c{bench(), s.m * s.n, dtype};
        MatMul p{on_a, on_b, c, s.m, s.n, s.k};
        const Exact expected = with_bias(product, bias, dtype);
        if (biased) {
          p.bias = on_bias;
          table().matmul(p, stream());
          expect_near(c.floats(), expected, dtype);
        }
        p.epilogue = Epilogue::gelu;
        p.pre_gelu = z;
        table().matmul(p, stream());
        expect_near(z.floats(), expected, dtype);
        expect_near(c.floats(), with_gelu(expected, dtype), dtype);
      }
    }
  }
}

TEST_P(MatMulKernels, AGradientGoesThroughGelu) {
  for (const DType dtype : kValueDTypes) {
    for (const auto& [s, offset] : kEpilogues) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " n " << s.n << " offset " << offset);
      const Floats dy = random_values(dtype, s.m * s.k, 1), w = random_values(dtype, s.k * s.n, 2);
      const Floats z = random_values(dtype, s.m * s.n, 3);
      DeviceValues on_dy{bench(), dy, dtype}, dz{bench(), s.m * s.n, dtype};
      DeviceValues on_w{bench(), stored(w, Transpose::yes, s.k, s.n), dtype};
      DeviceValues on_z{bench(), z, dtype, offset};
      MatMul p{on_dy, on_w, dz, s.m, s.n, s.k};
      p.transpose_b = Transpose::yes;
      p.epilogue = Epilogue::gelu_gradient;
      p.pre_gelu = on_z;
      table().matmul(p, stream());
      expect_near(dz.floats(), with_slope(exact(dy, w, s, factor(dtype)), z, dtype), dtype);
      EXPECT_EQ(on_z.floats(), z);
    }
  }
}

/// `sum` plus residual; the sum may have been rounded to `dtype` first.
Exact with_residual(Exact sum, const Floats& residual, DType dtype) {
  for (std::size_t i = 0; i < sum.sum.size(); ++i) {
    sum.bound[i] += rounding(dtype, std::abs(sum.sum[i]) + sum.bound[i]);
    sum.sum[i] += static_cast<double>(residual[i]);
    sum.bound[i] += rounding(kFp32, sum.sum[i]);
  }
  return sum;
}

TEST_P(MatMulKernels, AResidualIsAddedAndKept) {
  for (const DType factors : kValueDTypes) {
    for (const DType dtype : kValueDTypes) {
      for (const auto& [s, offset] : kEpilogues) {
        SCOPED_TRACE(testing::Message() << to_string(factors) << " -> " << to_string(dtype) << " n "
                                        << s.n << " offset " << offset);
        const Floats a = random_values(factors, s.m * s.k, 1);
        const Floats b = random_values(factors, s.k * s.n, 2);
        const Floats bias = random_values(dtype, s.n, 3);
        const Floats before = random_values(dtype, s.m * s.n, 4);
        const Exact product = exact(a, b, s, factor(factors));
        DeviceValues on_a{bench(), a, factors}, on_b{bench(), b, factors};
        DeviceValues on_bias{bench(), bias, dtype}, residual{bench(), before, dtype, offset};
        DeviceValues c{bench(), s.m * s.n, dtype};
        MatMul p{on_a, on_b, c, s.m, s.n, s.k};
        p.residual = residual;
        table().matmul(p, stream());
        expect_near(c.floats(), with_residual(product, before, dtype), dtype);
        p.bias = on_bias;
        table().matmul(p, stream());
        expect_near(c.floats(), with_residual(with_bias(product, bias, dtype), before, dtype),
                    dtype);
        p.k = 0;
        p.bias = {};
        table().matmul(p, stream());
        EXPECT_EQ(c.floats(), before);
        EXPECT_EQ(residual.floats(), before);
      }
    }
  }
}

/// The column sums of b, k x n, added to `before`.
Exact column_sums(const Floats& b, const Floats& before, const Size& s) {
  const Floats ones(static_cast<std::size_t>(s.k), 1.0F);
  return added(exact(ones, b, {1, s.n, s.k}), before, s.k);
}

// On a CPU 16-bit sums are rounded many times; BiasKernels has the bound.
TEST_P(MatMulKernels, ABiasGradientIsTheSumsOfColumns) {
  for (const DType dtype : kValueDTypes) {
    for (const DType result : kValueDTypes) {
      for (const Size& s : {Size{16, 24, 48}, Size{7, 33, 900}, Size{33, 64, 100}, Size{5, 8, 1}}) {
        SCOPED_TRACE(testing::Message()
                     << to_string(dtype) << " -> " << to_string(result) << " n " << s.n);
        const Floats x = random_values(dtype, s.m * s.k, 1);
        const Floats dy = random_values(dtype, s.k * s.n, 2);
        const Floats before = random_values(result, s.m * s.n, 3);
        const DType summed = on_cuda() ? result : kFp32;
        const Floats bias_before = random_values(summed, s.n, 4);
        DeviceValues on_x{bench(), stored(x, Transpose::yes, s.m, s.k), dtype};
        DeviceValues on_dy{bench(), dy, dtype}, c{bench(), before, result};
        DeviceValues sums{bench(), bias_before, summed, 1};
        MatMul p{on_x, on_dy, c, s.m, s.n, s.k, Transpose::yes, Transpose::no, Write::add};
        p.bias_gradient = sums;
        table().matmul(p, stream());
        expect_near(c.floats(), added(exact(x, dy, s, factor(dtype)), before, s.k, factor(dtype)),
                    result);
        expect_near(sums.floats(), column_sums(dy, bias_before, s), summed);
        p.write = p.bias_gradient_write = Write::overwrite;
        table().matmul(p, stream());
        expect_near(c.floats(), exact(x, dy, s, factor(dtype)), result);
        expect_near(sums.floats(), column_sums(dy, filled(s.n, 0.0F), s), summed);
        p.write = p.bias_gradient_write = Write::add;
        const Floats then = sums.floats();
        p.k = 0;
        table().matmul(p, stream());
        EXPECT_EQ(sums.floats(), then);
        p.k = s.k;
        p.m = 0;
        table().matmul(p, stream());
        expect_near(sums.floats(), column_sums(dy, then, s), summed);
      }
    }
  }
}

TEST_P(MatMulKernels, RefuseStridesThatDoNotFit) {
  DeviceArray<float> x{bench(), 12};
  MatMul product{x.data(), x.data(), x.data(), 2, 3, 2};
  product.c_stride = 2;
  EXPECT_THROW(table().matmul(product, stream()), ContractError);
  product.c_stride = 0;
  product.a_stride = 1;
  EXPECT_THROW(table().matmul(product, stream()), ContractError);
  product.a_stride = 0;
  product.c_stride = 4;
  product.bias = x.data();
  EXPECT_THROW(table().matmul(product, stream()), ContractError);
}

TEST_P(MatMulKernels, RefuseFp64AndBiasOrEpilogueWithAccumulation) {
  DeviceArray<float> x{bench(), 4}, y{bench(), 4};
  const auto refused = [&](auto&& change) {
    MatMul p{x.data(), x.data(), x.data(), 1, 1, 1};
    change(p);
    EXPECT_THROW(table().matmul(p, stream()), ContractError);
  };
  refused([&](MatMul& p) { p.c = {x.data(), DType::fp64}; });
  refused([&](MatMul& p) { p.bias = x.data(), p.write = Write::add; });
  refused(
      [&](MatMul& p) { p.epilogue = Epilogue::gelu, p.pre_gelu = x.data(), p.write = Write::add; });
  refused([&](MatMul& p) { p.epilogue = Epilogue::gelu; });
  refused([&](MatMul& p) { p.epilogue = Epilogue::gelu, p.pre_gelu = {x.data(), DType::bf16}; });
  refused([&](MatMul& p) {
    p.epilogue = Epilogue::gelu_gradient, p.pre_gelu = x.data(), p.bias = x.data();
  });
  refused([&](MatMul& p) { p.residual = y.data(), p.write = Write::add; });
  refused([&](MatMul& p) { p.residual = y.data(), p.c_stride = 2; });
  refused([&](MatMul& p) { p.residual = x.data(); });
  refused([&](MatMul& p) { p.residual = {y.data(), DType::bf16}; });
  refused([&](MatMul& p) { p.bias_gradient = y.data(), p.transpose_b = Transpose::yes; });
  refused([&](MatMul& p) { p.bias_gradient = y.data(), p.c_stride = 2; });
  refused([&](MatMul& p) { p.bias_gradient = y.data(), p.bias = x.data(); });
  refused([&](MatMul& p) { p.bias_gradient = y.data(), p.residual = y.data(); });
  refused([&](MatMul& p) {
    p.residual = y.data(), p.epilogue = Epilogue::gelu, p.pre_gelu = y.data();
  });
}

class MatMulOnCpu : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, MatMulOnCpu, cpu_alone(), backend_name);

TEST_P(MatMulOnCpu, OverwriteIsAddOntoZero) {
  DeviceArray<float> a{bench(), random_floats(40 * 50, 7)}, b{bench(), random_floats(50 * 60, 8)};
  DeviceArray<float> sum{bench(), filled(40 * 60, 0.0F)}, written{bench(), 40 * 60};
  MatMul product{a.data(), b.data(), written.data(), 40, 60, 50};
  table().matmul(product, stream());
  product.c = sum.data();
  product.write = Write::add;
  table().matmul(product, stream());
  EXPECT_TRUE(same_bits(sum.read(), written.read()));
}

// A trainer that runs the separate kernels gets the same bits.
TEST_P(MatMulOnCpu, EpiloguesAreTheKernelsThatTheyName) {
  constexpr std::int64_t m = 37, n = 45, k = 70;
  DeviceArray<float> a{bench(), random_floats(m * k, 1)}, b{bench(), random_floats(k * n, 2)};
  DeviceArray<float> bias{bench(), random_floats(n, 3)}, product{bench(), m * n};
  table().matmul({a.data(), b.data(), product.data(), m, n, k}, stream());
  DeviceArray<float> z{bench(), product.read()}, y{bench(), m * n}, slopes{bench(), m * n};
  table().add_bias(z.data(), bias.data(), m, n, stream());
  table().gelu_forward(z.data(), y.data(), m * n, stream(), GELU::tanh);
  table().gelu_backward(z.data(), product.data(), slopes.data(), m * n, stream(), GELU::tanh);

  DeviceArray<float> fused_z{bench(), m * n}, fused{bench(), m * n};
  MatMul p{a.data(), b.data(), fused.data(), m, n, k};
  p.bias = bias.data();
  table().matmul(p, stream());
  EXPECT_TRUE(same_bits(fused.read(), z.read()));
  p.epilogue = Epilogue::gelu;
  p.pre_gelu = fused_z.data();
  table().matmul(p, stream());
  EXPECT_TRUE(same_bits(fused_z.read(), z.read()));
  EXPECT_TRUE(same_bits(fused.read(), y.read()));
  p.bias = {};
  p.epilogue = Epilogue::gelu_gradient;
  table().matmul(p, stream());
  EXPECT_TRUE(same_bits(fused.read(), slopes.read()));
  p.epilogue = Epilogue::none;
  p.bias = bias.data();
  p.residual = y.data();
  table().matmul(p, stream());
  table().add(y.data(), z.data(), z.data(), m * n, stream());
  EXPECT_TRUE(same_bits(fused.read(), z.read()));

  DeviceArray<float> dbias{bench(), filled(n, 0.5F)}, fused_dbias{bench(), filled(n, 0.5F)};
  p = {a.data(), b.data(), fused.data(), m, n, k};
  p.write = Write::add;
  p.bias_gradient = fused_dbias.data();
  table().matmul(p, stream());
  table().bias_gradient(b.data(), dbias.data(), k, n, Write::add, stream());
  EXPECT_TRUE(same_bits(fused_dbias.read(), dbias.read()));
}

// matmul uses one of them here; another processor would use the other.
TEST(ProductVariants, EachMatchesReferenceWithStrides) {
  constexpr std::int64_t m = 37, n = 45, k = 129, gap = 5;
  const Floats a = random_floats(m * k, 9), b = random_floats(k * n, 10);
  const Floats before = random_floats(m * n, 11);
  const Exact expected = added(exact(a, b, {m, n, k}), before, k);
  Floats wide(static_cast<std::size_t>(m * (n + gap)), 7.0F);
  for (std::int64_t i = 0; i < m; ++i) {
    std::copy_n(before.data() + i * n, n, wide.data() + i * (n + gap));
  }
  for (const MatMulVariant& variant : matmul_variants()) {
    SCOPED_TRACE(variant.name);
    Floats c = wide;
    variant.run(
        {{a.data(), k}, Transpose::no, {b.data(), n}, Transpose::no, {c.data(), n + gap}, m, n, k});
    for (std::int64_t i = 0; i < m; ++i) {
      const std::span<const float> row{c.data() + i * (n + gap), static_cast<std::size_t>(n + gap)};
      EXPECT_THAT(row.subspan(n), testing::Each(7.0F));
    }
    expect_near(without_gaps(c, n, n + gap), expected, DType::fp32);
  }
}

}  // namespace
}  // namespace tessera::kernels::matmul_test
