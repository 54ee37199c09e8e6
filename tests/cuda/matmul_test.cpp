#include "kernels/matmul/matmul.hpp"

#include <cmath>
#include <random>

#include "cuda/emulation.hpp"
#include "cuda/support.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/support.hpp"
#include "kernels/support/typed.hpp"
#include "tessera/base/math.hpp"

namespace tessera::test {
namespace {

using kernels::Epilogue;
using kernels::MatMul;
using kernels::Transpose;
using kernels::Write;
using Floats = std::vector<float>;

constexpr DType kFp32 = DType::fp32;
constexpr DType kBf16 = DType::bf16;
constexpr DType kFp16 = DType::fp16;
constexpr DType kDtypes[] = {kFp32, kBf16, kFp16};
constexpr Transpose kTransposes[] = {Transpose::no, Transpose::yes};

struct Size {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};
constexpr Size kProducts[] = {{1, 1, 1},   {2, 3, 4},     {1, 65, 33},   {65, 1, 33},
                              {65, 33, 1}, {31, 33, 5},   {64, 64, 64},  {16, 24, 48},
                              {7, 8, 900}, {50, 70, 129}, {40, 56, 2100}};

/// A matrix of any dtype on the device, between guards.
class Matrix {
 public:
  Matrix(CudaBench& bench, DType dtype, std::int64_t elems, std::int64_t offset = 0)
      : dtype_{dtype},
        elems_{elems},
        bytes_{bench, elems * bytes_of_one(), offset * bytes_of_one()} {}
  Matrix(CudaBench& bench, DType dtype, const Floats& values, std::int64_t offset = 0)
      : Matrix{bench, dtype, std::ssize(values), offset} {
    write(values);
  }

  [[nodiscard]] Values get() { return {bytes_.data(), dtype_}; }
  void poison() { bytes_.poison(); }
  void write(const Floats& values) {
    std::vector<unsigned char> stored(static_cast<std::size_t>(elems_ * bytes_of_one()));
    for (std::int64_t i = 0; i < elems_; ++i) {
      kernels::set_element({stored.data(), dtype_}, i, values[static_cast<std::size_t>(i)]);
    }
    bytes_.write(stored);
  }
  [[nodiscard]] Floats read() {
    const std::vector<unsigned char> stored = bytes_.read();
    Floats values(static_cast<std::size_t>(elems_));
    for (std::int64_t i = 0; i < elems_; ++i) {
      values[static_cast<std::size_t>(i)] = kernels::element({stored.data(), dtype_}, i);
    }
    return values;
  }

 private:
  [[nodiscard]] std::int64_t bytes_of_one() const {
    return static_cast<std::int64_t>(size_of(dtype_));
  }

  DType dtype_;
  std::int64_t elems_;
  DeviceArray<unsigned char> bytes_;
};

/// Normally distributed numbers that `dtype` holds exactly.
Floats random_values(DType dtype, std::int64_t elems, unsigned seed) {
  std::mt19937 generator{seed};
  std::normal_distribution<float> normal{0.0F, 1.0F};
  Floats values(static_cast<std::size_t>(elems));
  for (float& value : values) {
    float stored = 0.0F;
    kernels::set_element({&stored, dtype}, 0, normal(generator));
    value = kernels::element({&stored, dtype}, 0);
  }
  return values;
}

/// Half a unit in the last place of a number of this size, at most.
double rounding_of(DType dtype, double value) {
  const double relative = dtype == kFp32 ? 0x1p-24 : dtype == kBf16 ? 0x1p-8 : 0x1p-11;
  return std::max(std::abs(value) * relative, dtype == kFp16 ? 0x1p-25 : 0.0);
}

/// A product in fp64, and how far from it one in fp32 may be.
struct Exact {
  std::vector<double> sum;
  std::vector<double> bound;
};

/// Of `p`, whose matrices hold `a`, `b` and, if it is added to, `c`. A sum of k terms in fp32, in
/// any order, rounded: (k + 1) u of the terms' sizes. Tensor cores cut off what fp32 does not hold,
/// of all terms that they add at once: four times as much.
Exact exact(const MatMul& p, const Floats& a, const Floats& b, const Floats& c) {
  const auto elems = static_cast<std::size_t>(p.m * p.n);
  Exact result{std::vector<double>(elems), std::vector<double>(elems)};
  const double unit = (size_of(p.a.dtype) == 2 ? 4 : 1) * static_cast<double>(p.k + 1) * 0x1p-24;
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      const auto at = static_cast<std::size_t>(i * p.n + j);
      double sum = p.write == Write::add ? double{c[at]} : 0.0;
      double size = std::abs(sum);
      for (std::int64_t l = 0; l < p.k; ++l) {
        const bool flipped_a = p.transpose_a == Transpose::yes;
        const bool flipped_b = p.transpose_b == Transpose::yes;
        const double term =
            double{a[static_cast<std::size_t>(flipped_a ? l * p.m + i : i * p.k + l)]} *
            double{b[static_cast<std::size_t>(flipped_b ? j * p.k + l : l * p.n + j)]};
        sum += term;
        size += std::abs(term);
      }
      result.sum[at] = sum;
      result.bound[at] = unit * size;
    }
  }
  return result;
}

/// Within `bound` and the rounding to `dtype` of the exact numbers.
void expect_near(const Floats& actual, const Exact& expected, DType dtype) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double sum = expected.sum[i];
    const double bound = expected.bound[i] + rounding_of(dtype, std::abs(sum) + expected.bound[i]);
    ASSERT_LE(std::abs(actual[i] - sum), bound) << "element " << i << ": " << actual[i];
  }
}

using CudaMatMul = CudaTest;

TEST_F(CudaMatMul, IsTheProductInFp64WithinTheBoundOfItsRoundings) {
  for (const DType factor : kDtypes) {
    for (const Size& s : kProducts) {
      const Floats a = random_values(factor, s.m * s.k, 1);
      const Floats b = random_values(factor, s.k * s.n, 2);
      for (const DType result : kDtypes) {
        const Floats c = random_values(result, s.m * s.n, 3);
        for (const std::int64_t offset : {0, 1}) {
          Matrix on_a{bench(), factor, a, offset}, on_b{bench(), factor, b, 3 * offset};
          Matrix on_c{bench(), result, s.m * s.n, 5 * offset};
          for (const Transpose ta : kTransposes) {
            for (const Transpose tb : kTransposes) {
              for (const Write write : {Write::overwrite, Write::add}) {
                const MatMul p{on_a.get(), on_b.get(), on_c.get(), s.m, s.n, s.k, ta, tb, write};
                SCOPED_TRACE(testing::Message()
                             << s.m << " x " << s.n << " x " << s.k << ' ' << to_string(factor)
                             << " -> " << to_string(result) << " transposed " << int(ta) << int(tb)
                             << " write " << int(write) << " offset " << offset);
                on_c.poison();
                if (write == Write::add) { on_c.write(c); }
                table().matmul(p, stream());
                expect_near(on_c.read(), exact(p, a, b, c), result);
                if (HasFatalFailure()) { return; }
              }
            }
          }
        }
      }
    }
  }
}

// As GPT's logits lie: A's gaps are full of NaN, and so are those of C, where it is so afterwards.
TEST_F(CudaMatMul, GapsBetweenRowsAreNeitherReadNorWritten) {
  for (const DType dtype : kDtypes) {
    for (const Size& s : {Size{5, 3, 4}, Size{66, 101, 70}}) {
      for (const Transpose ta : kTransposes) {
        for (const Write write : {Write::overwrite, Write::add}) {
          const std::int64_t a_columns = ta == Transpose::yes ? s.m : s.k;
          const std::int64_t a_stride = round_up<std::int64_t>(a_columns, 64);
          const std::int64_t c_stride = round_up<std::int64_t>(s.n, 64);
          const Floats a = random_values(dtype, s.m * s.k, 1);
          const Floats b = random_values(dtype, s.k * s.n, 2);
          const Floats c = random_values(dtype, s.m * s.n, 3);
          Matrix on_a{bench(), dtype, kernels::with_gaps(a, a_columns, a_stride)};
          Matrix on_b{bench(), dtype, b};
          Matrix on_c{bench(), dtype, kernels::with_gaps(c, s.n, c_stride)};
          MatMul p{on_a.get(), on_b.get(), on_c.get(), s.m, s.n, s.k, ta, Transpose::no, write};
          p.a_stride = a_stride;
          p.c_stride = c_stride;
          table().matmul(p, stream());
          const Floats all = on_c.read();
          expect_near(kernels::without_gaps(all, s.n, c_stride), exact(p, a, b, c), dtype);
          EXPECT_EQ(std::count_if(all.begin(), all.end(), [](float x) { return std::isnan(x); }),
                    (c_stride - s.n) * s.m);
        }
      }
    }
  }
}

TEST_F(CudaMatMul, AnEmptySumLeavesGapsAsTheyAre) {
  Matrix c{bench(), kBf16, Floats(10, 7.0F)};
  MatMul p{{nullptr, kBf16}, {nullptr, kBf16}, c.get(), 2, 3, 0};
  p.c_stride = 5;
  table().matmul(p, stream());
  EXPECT_EQ(c.read(), (Floats{0, 0, 0, 7, 7, 0, 0, 0, 7, 7}));
}

// 1 + 2^-20 times 1: TF32 has ten bits behind the point.
TEST_F(CudaMatMul, Fp32IsMultipliedInFp32) {
  constexpr std::int64_t size = 64;
  Floats a(size * size, 0.0F);
  for (std::int64_t i = 0; i < size; ++i) { a[static_cast<std::size_t>(i * size + i)] = 1.0F; }
  const Floats b(size * size, 1.0F + 0x1p-20F);
  Matrix on_a{bench(), kFp32, a}, on_b{bench(), kFp32, b}, c{bench(), kFp32, size * size};
  table().matmul({on_a.get(), on_b.get(), c.get(), size, size, size}, stream());
  EXPECT_EQ(c.read(), b);
}

// Slots and arenas put a matrix at another address in every strategy; all at multiples of 16 bytes.
TEST_F(CudaMatMul, BitsAreTheSameInEveryRunAndAtEveryAlignedAddress) {
  for (const Size& s : {Size{50, 70, 129}, Size{40, 56, 2100}, Size{64, 128, 4096}}) {
    for (const DType dtype : kDtypes) {
      const Floats a = random_values(dtype, s.m * s.k, 4), b = random_values(dtype, s.k * s.n, 5);
      Floats expected;
      for (const std::int64_t offset : {0, 0, 8, 16, 64}) {
        Matrix on_a{bench(), dtype, a, offset}, on_b{bench(), dtype, b, 3 * offset};
        Matrix c{bench(), kFp32, s.m * s.n, 5 * offset};
        table().matmul({on_a.get(), on_b.get(), c.get(), s.m, s.n, s.k}, stream());
        const Floats bits = c.read();
        if (expected.empty()) { expected = bits; }
        ASSERT_EQ(bits, expected) << to_string(dtype) << " offset " << offset;
      }
    }
  }
}

TEST_F(CudaMatMul, EmptySumsOverwriteWithZeroAndAddNothing) {
  for (const DType dtype : kDtypes) {
    Matrix c{bench(), dtype, 6, 1}, bias{bench(), dtype, Floats{1, 2, 3}};
    MatMul p{{nullptr, kFp32}, {nullptr, kFp32}, c.get(), 2, 3, 0};
    table().matmul(p, stream());
    EXPECT_EQ(c.read(), Floats(6, 0.0F));
    p.bias = bias.get();
    table().matmul(p, stream());
    EXPECT_EQ(c.read(), (Floats{1, 2, 3, 1, 2, 3}));
    p.bias = {};
    p.write = Write::add;
    table().matmul(p, stream());
    p.m = 0;
    table().matmul(p, stream());
    p.n = 0;
    table().matmul(p, stream());
    EXPECT_EQ(c.read(), (Floats{1, 2, 3, 1, 2, 3}));
  }
}

// 66 rows of 65,536 numbers are rounded through the workspace 64 rows at a time.
TEST_F(CudaMatMul, ResultsThatAreRoundedThroughTheWorkspaceComeInPieces) {
  constexpr Size s{66, 65'536, 2};
  const Floats a = random_values(kFp16, s.m * s.k, 6), b = random_values(kFp16, s.k * s.n, 7);
  Matrix on_a{bench(), kFp16, a, 1}, on_b{bench(), kFp16, b}, on_c{bench(), kBf16, s.m * s.n};
  for (const Transpose ta : kTransposes) {
    for (const Write write : {Write::overwrite, Write::add}) {
      const MatMul p{on_a.get(), on_b.get(), on_c.get(), s.m, s.n, s.k, ta, Transpose::no, write};
      if (write == Write::add) { on_c.write(Floats(std::size_t(s.m * s.n), 2.5F)); }
      table().matmul(p, stream());
      expect_near(on_c.read(), exact(p, a, b, Floats(std::size_t(s.m * s.n), 2.5F)), kBf16);
    }
  }
}

/// The derivative of the tanh form of GELU.
double slope(double x) {
  const double scale = std::sqrt(2.0 / 3.14159265358979323846);
  const double tanh = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + tanh) +
         0.5 * x * (1.0 - tanh * tanh) * scale * (1.0 + 3.0 * 0.044715 * x * x);
}

double gelu(double x) {
  const double scale = std::sqrt(2.0 / 3.14159265358979323846);
  return 0.5 * x * (1.0 + std::tanh(scale * (x + 0.044715 * x * x * x)));
}

/// The product plus bias, which may have been rounded to `dtype` in between.
Exact with_bias(Exact product, const Floats& bias, DType dtype) {
  for (std::size_t i = 0; i < product.sum.size(); ++i) {
    product.bound[i] += rounding_of(dtype, std::abs(product.sum[i]) + product.bound[i]);
    product.sum[i] += bias[i % bias.size()];
    product.bound[i] += rounding_of(kFp32, product.sum[i]);
  }
  return product;
}

/// f of what `z` bounds, where |f'| <= 1.13, in 16 bits with a tanh that is off by 2^-10 at most
/// (what the hardware's is), and with z rounded to `dtype` in between.
Exact with_gelu(Exact z, DType dtype) {
  for (std::size_t i = 0; i < z.sum.size(); ++i) {
    const double size = std::abs(z.sum[i]) + z.bound[i];
    const double tanh = dtype == kFp32 ? 0x1p-21 : 0x1p-10;
    z.bound[i] = 1.13 * (z.bound[i] + rounding_of(dtype, size)) + tanh * size;
    z.sum[i] = gelu(z.sum[i]);
  }
  return z;
}

/// `product` times the slope of GELU at `x`.
Exact with_slope(Exact product, const Floats& x, DType dtype) {
  for (std::size_t i = 0; i < product.sum.size(); ++i) {
    const double size = std::abs(product.sum[i]) + product.bound[i];
    const double tanh = dtype == kFp32 ? 0x1p-20 : 0x1p-9;
    product.bound[i] =
        1.13 * (product.bound[i] + rounding_of(dtype, size)) + tanh * (1.0 + std::abs(x[i])) * size;
    product.sum[i] *= slope(x[i]);
  }
  return product;
}

/// What cuBLASLt fuses (n a multiple of 8, aligned) and what it does not.
struct EpilogueCase {
  Size size;
  std::int64_t offset;
};
constexpr EpilogueCase kEpilogues[] = {
    {{16, 24, 48}, 0}, {{33, 64, 100}, 0}, {{33, 64, 100}, 1}, {{31, 33, 65}, 0}, {{1, 8, 1}, 0}};

TEST_F(CudaMatMul, BiasIsAddedToEveryRow) {
  for (const DType dtype : kDtypes) {
    for (const auto& [s, offset] : kEpilogues) {
      const Floats a = random_values(dtype, s.m * s.k, 1), b = random_values(dtype, s.k * s.n, 2);
      const Floats bias = random_values(dtype, s.n, 3);
      Matrix on_a{bench(), dtype, a}, on_b{bench(), dtype, b},
          on_bias{bench(), dtype, bias, offset};
      Matrix c{bench(), dtype, s.m * s.n};
      MatMul p{on_a.get(), on_b.get(), c.get(), s.m, s.n, s.k};
      p.bias = on_bias.get();
      table().matmul(p, stream());
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " n " << s.n << " offset " << offset);
      expect_near(c.read(), with_bias(exact(p, a, b, {}), bias, dtype), dtype);
    }
  }
}

TEST_F(CudaMatMul, GeluKeepsWhatItIsAppliedTo) {
  for (const DType dtype : kDtypes) {
    for (const auto& [s, offset] : kEpilogues) {
      for (const bool biased : {false, true}) {
        const Floats a = random_values(dtype, s.m * s.k, 1), b = random_values(dtype, s.k * s.n, 2);
        const Floats bias = biased ? random_values(dtype, s.n, 3) : Floats(std::size_t(s.n), 0.0F);
        Matrix on_a{bench(), dtype, a}, on_b{bench(), dtype, b}, on_bias{bench(), dtype, bias};
        Matrix z{bench(), dtype, s.m * s.n, offset}, c{bench(), dtype, s.m * s.n};
        MatMul p{on_a.get(), on_b.get(), c.get(), s.m, s.n, s.k};
        if (biased) { p.bias = on_bias.get(); }
        p.epilogue = Epilogue::gelu;
        p.pre_gelu = z.get();
        table().matmul(p, stream());
        const Exact expected = with_bias(exact(p, a, b, {}), bias, dtype);
        SCOPED_TRACE(testing::Message()
                     << to_string(dtype) << " n " << s.n << " offset " << offset);
        expect_near(z.read(), expected, dtype);
        expect_near(c.read(), with_gelu(expected, dtype), dtype);
      }
    }
  }
}

TEST_F(CudaMatMul, AGradientGoesThroughGelu) {
  for (const DType dtype : kDtypes) {
    for (const auto& [s, offset] : kEpilogues) {
      const Floats dy = random_values(dtype, s.m * s.k, 1), w = random_values(dtype, s.k * s.n, 2);
      const Floats z = random_values(dtype, s.m * s.n, 3);
      Matrix on_dy{bench(), dtype, dy}, on_w{bench(), dtype, w}, on_z{bench(), dtype, z, offset};
      Matrix dz{bench(), dtype, s.m * s.n};
      MatMul p{on_dy.get(), on_w.get(), dz.get(), s.m, s.n, s.k};
      p.transpose_b = Transpose::yes;
      p.epilogue = Epilogue::gelu_gradient;
      p.pre_gelu = on_z.get();
      table().matmul(p, stream());
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " n " << s.n << " offset " << offset);
      expect_near(dz.read(), with_slope(exact(p, dy, w, {}), z, dtype), dtype);
      EXPECT_EQ(on_z.read(), z);
    }
  }
}

// The stream keeps 256 plans.
TEST_F(CudaMatMul, MoreProductsThanAreKeptAreStillRight) {
  constexpr std::int64_t most = 300;
  Matrix a{bench(), kFp32, Floats(2, 1.0F)}, b{bench(), kFp32, Floats(std::size_t(2 * most), 2.0F)};
  Matrix c{bench(), kFp32, most};
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t n = 1; n <= most; ++n) {
      table().matmul({a.get(), b.get(), c.get(), 1, n, 2}, stream());
    }
    ASSERT_EQ(c.read(), Floats(std::size_t(most), 4.0F));
    c.poison();
  }
}

TEST_F(CudaMatMul, AFailureNamesTheProduct) {
  TESSERA_EMULATION_ONLY();
  Matrix a{bench(), kBf16, 15}, b{bench(), kBf16, 20}, c{bench(), kFp32, 12};
  Emulation emulation;
  emulation.fail("cublasLtMatmul", 1, Emulation::kInvalidValue);
  try {
    table().matmul({a.get(), b.get(), c.get(), 3, 4, 5}, stream());
    FAIL() << "a failure of cuBLASLt goes unnoticed";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string{error.what()}.find("3 x 4 x 5 (bf16 x bf16 -> fp32)"), std::string::npos)
        << error.what();
  }
}

TEST_F(CudaMatMul, RefusesWhatItCannotMultiply) {
  Matrix fp32{bench(), kFp32, 4}, bf16{bench(), kBf16, 4};
  EXPECT_THROW(table().matmul({fp32.get(), bf16.get(), fp32.get(), 1, 1, 1}, stream()),
               ContractError);
  EXPECT_THROW(
      table().matmul({fp32.get(), fp32.get(), {fp32.get().data, DType::fp64}, 1, 1, 1}, stream()),
      ContractError);
  MatMul biased{fp32.get(), fp32.get(), fp32.get(), 1, 1, 1};
  biased.bias = fp32.get();
  biased.write = Write::add;
  EXPECT_THROW(table().matmul(biased, stream()), ContractError);
  MatMul gaps{bf16.get(), bf16.get(), {fp32.get().data, DType::fp16}, 1, 1, 1};
  gaps.c_stride = 2;
  EXPECT_THROW(table().matmul(gaps, stream()), ContractError);
  const OwnedStream bare = device().make_compute_stream();
  EXPECT_THROW(table().matmul({fp32.get(), fp32.get(), fp32.get(), 1, 1, 1}, bare.get()),
               ContractError);
}

}  // namespace
}  // namespace tessera::test
