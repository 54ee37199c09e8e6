// Every algorithm of the CPU's matmul, in every dtype.
#include "kernels/matmul/matmul_algorithms.hpp"

#include <dlfcn.h>
#include <malloc.h>

#include <array>
#include <thread>

#include "kernels/matmul/matmul_onednn.hpp"
#include "kernels/matmul_exact.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/product_library.hpp"

namespace tessera::kernels::matmul_algorithms_test {
namespace {

using exact_products::added;
using exact_products::Exact;
using exact_products::exact;
using exact_products::expect_near;
using exact_products::kTransposes;
using exact_products::kWrites;
using exact_products::Size;
using exact_products::stored;

constexpr DType kFp32 = DType::fp32, kBf16 = DType::bf16, kFp16 = DType::fp16;

struct Dtypes {
  DType a, b, c;
};
// The products of a trainer: activations and weights, gradients in fp32 or in the same dtype, and
// mixed pairs, such as with an fp32 weight.
constexpr Dtypes kDtypes[] = {{kFp32, kFp32, kFp32}, {kBf16, kBf16, kFp32}, {kBf16, kBf16, kBf16},
                              {kFp16, kFp16, kFp32}, {kFp16, kFp16, kFp16}, {kBf16, kFp32, kBf16},
                              {kFp32, kBf16, kFp32}, {kFp32, kFp32, kFp16}, {kFp16, kBf16, kFp16}};

std::string name_of(const MatMul& p) {
  std::string name;
  for (const std::int64_t size : {p.m, p.n, p.k}) { name += std::to_string(size) + " "; }
  for (const DType dtype : {p.a.dtype, p.b.dtype, p.c.dtype}) {
    name += std::string{to_string(dtype)} + " ";
  }
  name += "transposed " + std::to_string(int(p.transpose_a)) + std::to_string(int(p.transpose_b));
  return name + (p.write == Write::add ? " added" : "");
}

using MatMulAlgorithms = CpuTest;

// Includes sizes around the pieces: 128 and 256 rows with oneDNN, 192 x 384 in sums of 256 with
// conversion.
TEST_F(MatMulAlgorithms, MatchAProductInFp64WithinTheBoundOfTheirRoundings) {
  constexpr Size sizes[] = {{1, 1, 1},   {2, 3, 4},   {1, 65, 300},    {65, 1, 33},
                            {31, 33, 5}, {7, 8, 900}, {197, 389, 261}, {390, 40, 65}};
  for (const Dtypes& dtypes : kDtypes) {
    for (const Size& s : sizes) {
      const Floats a = rounded(dtypes.a, random_floats(s.m * s.k, 1));
      const Floats b = rounded(dtypes.b, random_floats(s.k * s.n, 2));
      const Floats c = rounded(dtypes.c, random_floats(s.m * s.n, 3));
      const Exact product = exact(a, b, s);
      for (const Transpose ta : kTransposes) {
        for (const Transpose tb : kTransposes) {
          DeviceValues stored_a{bench(), stored(a, ta, s.m, s.k), dtypes.a, 1};
          DeviceValues stored_b{bench(), stored(b, tb, s.k, s.n), dtypes.b, 3};
          for (const Write write : kWrites) {
            const bool adds = write == Write::add;
            const Floats before = adds ? c : filled(s.m * s.n, kNan);
            const Exact expected = adds ? added(product, c, s.k) : product;
            DeviceValues stored_c{bench(), before, dtypes.c, 5};
            const MatMul p{stored_a, stored_b, stored_c, s.m, s.n, s.k, ta, tb, write};
            for (const MatMulAlgorithm algorithm : algorithms_of(p)) {
              SCOPED_TRACE(std::string{to_string(algorithm)} + ": " + name_of(p));
              for (std::int64_t i = 0; i < s.m * s.n; ++i) {
                set_element(p.c, i, before[std::size_t(i)]);
              }
              matmul_with(algorithm, p, stream());
              expect_near(stored_c.floats(), expected, p.c.dtype);
              if (HasFatalFailure()) { return; }
            }
          }
        }
      }
    }
  }
}

TEST_F(MatMulAlgorithms, TheReferenceReadsAndWritesEveryDtype) {
  const Floats a{1, 2, 3, 4, 5, 6}, b{1, 0, 0, 1, 10, 100};
  for (const Dtypes& dtypes : kDtypes) {
    DeviceValues stored_a{bench(), a, dtypes.a}, stored_b{bench(), b, dtypes.b};
    DeviceValues stored_c{bench(), Floats(4, 1.0F), dtypes.c};
    reference::matmul({.a = stored_a.values(),
                       .b = stored_b.values(),
                       .c = stored_c.values(),
                       .m = 2,
                       .n = 2,
                       .k = 3,
                       .write = Write::add},
                      stream());
    EXPECT_EQ(stored_c.floats(), rounded(dtypes.c, {32, 303, 65, 606}));
  }
}

TEST_F(MatMulAlgorithms, EmptySumsOverwriteWithZeroAndAddNothing) {
  for (const Dtypes& dtypes : kDtypes) {
    for (const Write write : {Write::overwrite, Write::add}) {
      DeviceValues c{bench(), Floats(6, 2.5F), dtypes.c, 1};
      const ConstValues none_a{nullptr, dtypes.a}, none_b{nullptr, dtypes.b};
      table().matmul(
          {.a = none_a, .b = none_b, .c = c.values(), .m = 2, .n = 3, .k = 0, .write = write},
          stream());
      EXPECT_EQ(c.floats(), Floats(6, write == Write::add ? 2.5F : 0.0F));
      table().matmul({none_a, none_b, c.values(), 0, 3, 4}, stream());
      table().matmul({none_a, none_b, c.values(), 2, 0, 4}, stream());
      EXPECT_EQ(c.floats(), Floats(6, write == Write::add ? 2.5F : 0.0F));
    }
  }
}

// Row 1 has a NaN, row 2 an infinity, no other row has either.
TEST_F(MatMulAlgorithms, NansAndInfinitiesReachOnlyTheirRows) {
  constexpr Size s{40, 64, 300};
  for (const Dtypes& dtypes : kDtypes) {
    Floats a(std::size_t(s.m * s.k), 0.5F);
    a[std::size_t(s.k + 290)] = kNan;
    a[std::size_t(2 * s.k + 7)] = kInfinity;
    DeviceValues stored_a{bench(), a, dtypes.a};
    DeviceValues b{bench(), filled(s.k * s.n, 0.25F), dtypes.b};
    DeviceValues c{bench(), filled(s.m * s.n, kNan), dtypes.c};
    const MatMul p{stored_a.values(), b.values(), c.values(), s.m, s.n, s.k};
    for (const MatMulAlgorithm algorithm : algorithms_of(p)) {
      SCOPED_TRACE(std::string{to_string(algorithm)} + ": " + name_of(p));
      matmul_with(algorithm, p, stream());
      const Floats values = c.floats();
      for (std::int64_t i = 0; i < s.m * s.n; ++i) {
        const float value = values[std::size_t(i)];
        const std::int64_t row = i / s.n;
        ASSERT_TRUE(row == 1   ? std::isnan(value)
                    : row == 2 ? value == kInfinity
                               : value == 37.5F)
            << "row " << row << ": " << value;
      }
    }
  }
}

// 256 + 3 x 0.75: added one at a time, each of the three terms would be rounded away.
TEST_F(MatMulAlgorithms, AddingToSixteenBitsRoundsOnce) {
  constexpr Size s{40, 16, 768};
  for (const DType dtype : {kFp32, kBf16}) {
    DeviceValues a{bench(), filled(s.m * s.k, 0.75F / 256), dtype};
    DeviceValues b{bench(), filled(s.k * s.n, 1.0F), dtype};
    DeviceValues c{bench(), s.m * s.n, kBf16};
    const MatMul p{.a = a.values(),
                   .b = b.values(),
                   .c = c.values(),
                   .m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .write = Write::add};
    for (const MatMulAlgorithm algorithm : algorithms_of(p)) {
      for (std::int64_t i = 0; i < s.m * s.n; ++i) { set_element(p.c, i, 256.0F); }
      matmul_with(algorithm, p, stream());
      EXPECT_EQ(c.floats(), Floats(std::size_t(s.m * s.n), 258.0F)) << to_string(algorithm);
    }
  }
}

// --- Bits.

constexpr Size kCut[] = {
    {700, 130, 300}, {1000, 65, 64}, {1, 900, 300}, {900, 1, 300}, {3, 700, 101}, {257, 33, 90},
#if !TESSERA_SANITIZED  // these two take half of the time and add no other kind of cut
    {131, 401, 501}, {390, 97, 257},
#endif
};

/// A device with `threads` threads.
struct Machine {
  explicit Machine(int threads_) : threads{threads_} {}
  int threads;
  DeviceBench bench{make_cpu_device({.threads = threads})};
};

/// The bits of a product with all matrices offset by `offset` elements or a value derived from it.
Floats product_at(MatMul p, MatMulAlgorithm algorithm, std::int64_t offset, Machine& machine,
                  const Floats& a, const Floats& b, const Floats& c) {
  DeviceValues stored_a{machine.bench, a, p.a.dtype, offset};
  DeviceValues stored_b{machine.bench, b, p.b.dtype, 3 * offset % 17};
  DeviceValues stored_c{machine.bench, c, p.c.dtype, (5 * offset + 1) % 17};
  p.a = stored_a;
  p.b = stored_b;
  p.c = stored_c;
  matmul_with(algorithm, p, machine.bench.stream());
  return stored_c.floats();
}

// A matrix's address differs between strategies (slots, arenas), and the user chooses the number of
// threads.
TEST(MatMulBits, DependNeitherOnAddressesNorOnThreads) {
  Machine single{1}, two{2}, five{5};
  for (const Dtypes& dtypes : kDtypes) {
    for (const Size& s : kCut) {
      const Floats a = random_floats(s.m * s.k, 4), b = random_floats(s.k * s.n, 5);
      const Floats c = random_floats(s.m * s.n, 6);
      for (const Transpose ta : kTransposes) {
        const MatMul p{.a = {nullptr, dtypes.a},
                       .b = {nullptr, dtypes.b},
                       .c = {nullptr, dtypes.c},
                       .m = s.m,
                       .n = s.n,
                       .k = s.k,
                       .transpose_a = ta,
                       .transpose_b = s.n % 2 == 0 ? Transpose::yes : Transpose::no,
                       .write = ta == Transpose::yes ? Write::add : Write::overwrite};
        for (const MatMulAlgorithm algorithm : algorithms_of(p)) {
          const Floats expected = product_at(p, algorithm, 0, single, a, b, c);
          for (Machine* const machine : {&single, &two, &five}) {
            const std::int64_t offset = 2 * machine->threads + 1;
            ASSERT_TRUE(same_bits(product_at(p, algorithm, offset, *machine, a, b, c), expected))
                << to_string(algorithm) << " on " << machine->threads << " threads: " << name_of(p);
          }
        }
      }
    }
  }
}

/// Distance of A, B and C from a boundary of 64 bytes, in elements.
using Starts = std::array<std::int64_t, 3>;

Floats product_at(const Starts& starts, MatMul p, Machine& machine) {
  DeviceValues a{machine.bench, random_floats(p.m * p.k, 7), p.a.dtype, starts[0]};
  DeviceValues b{machine.bench, random_floats(p.k * p.n, 8), p.b.dtype, starts[1]};
  DeviceValues c{machine.bench, random_floats(p.m * p.n, 9), p.c.dtype, starts[2]};
  p.a = a;
  p.b = b;
  p.c = c;
  matmul_with(algorithms_of(p).front(), p, machine.bench.stream());
  return c.floats();
}

// Eigen would compute products whose sizes add up to less than 20 element by element, and split a
// row of C into vectors where C's address is a multiple of 32 bytes.
TEST(MatMulBits, OfTinyProductsDependOnNoAddress) {
  constexpr std::int64_t kTiny[] = {1, 2, 3, 5, 9};
  Machine machine{1};
  for (const Dtypes& d : {kDtypes[0], kDtypes[2]}) {
    for (int i = 0; i < 125 * 4; ++i) {
      const MatMul p{.a = {nullptr, d.a},
                     .b = {nullptr, d.b},
                     .c = {nullptr, d.c},
                     .m = kTiny[i % 5],
                     .n = kTiny[i / 5 % 5],
                     .k = kTiny[i / 25 % 5],
                     .transpose_a = kTransposes[i / 125 % 2],
                     .transpose_b = kTransposes[i / 250],
                     .write = kWrites[i % 2]};
      const Floats expected = product_at({0, 0, 0}, p, machine);
      for (const std::int64_t start : {1, 2, 4, 8}) {
        for (const Starts& starts :
             {Starts{start, 0, 0}, {0, start, 0}, {0, 0, start}, {start, start, start}}) {
          ASSERT_TRUE(same_bits(product_at(starts, p, machine), expected))
              << name_of(p) << " from " << ::testing::PrintToString(starts);
        }
      }
    }
  }
}

// --- oneDNN.

bool without_onednn() {
  return product_library().empty();
}

TEST(OneDnn, IsTakenForBf16WhereTheProcessorMultipliesIt) {
  std::vector<std::uint16_t> bits(64 * 64);
  const ConstValues m{bits.data(), kBf16};
  const MatMulAlgorithm algorithm = algorithms_of({m, m, {bits.data(), kBf16}, 64, 64, 64}).front();
  const bool amx = product_library().find("AMX") != std::string::npos;
  if (amx) {
    EXPECT_EQ(algorithm, MatMulAlgorithm::onednn);
  } else if (without_onednn()) {
    EXPECT_EQ(algorithm, MatMulAlgorithm::convert);
  }
  EXPECT_EQ(algorithms_of({m, m, {bits.data(), kBf16}, 4, 4, 4}).front(), MatMulAlgorithm::convert);
}

TEST(OneDnn, AFailureNamesTheProduct) {
  std::vector<std::uint16_t> bits(64);
  const MatMul p{{bits.data(), kFp16}, {bits.data(), kBf16}, {bits.data(), kFp16}, 3, 4, 5};
  try {
    onednn_matmul(p);
    FAIL() << "oneDNN multiplies fp16 by bf16";
  } catch (const DeviceError& error) {
    EXPECT_THAT(
        error.what(),
        testing::HasSubstr(without_onednn() ? "libdnnl-dev" : "3 x 4 x 5 (fp16 x bf16 -> fp16)"));
  }
}

TEST(OneDnn, NeedsAFewMebibytesAtMost) {
  constexpr std::size_t most = 4 << 20;
  for (const Size& s : {Size{383, 50257, 1024}, Size{383, 1024, 50257}, Size{191, 4096, 32768},
                        Size{191, 50257, 8192}, Size{383, 16384, 4096}}) {
    for (const Dtypes& dtypes : {kDtypes[0], kDtypes[1], kDtypes[2]}) {
      if (!onednn_is_faster(dtypes.a)) { continue; }
      for (const Transpose ta : kTransposes) {
        const bool flipped = ta == Transpose::yes;
        const MatMul p{.a = {nullptr, dtypes.a},
                       .b = {nullptr, dtypes.b},
                       .c = {nullptr, dtypes.c},
                       .m = flipped ? s.m / 2 : s.m,
                       .n = s.n,
                       .k = s.k,
                       .transpose_a = ta,
                       .write = flipped ? Write::add : Write::overwrite};
        EXPECT_LE(onednn_scratch_bytes(p), most) << name_of(p);
      }
    }
  }
}

// More kinds of product than a thread caches: some are compiled again.
TEST_F(MatMulAlgorithms, EvictedProductsAreStillRight) {
  constexpr std::int64_t k = 128, m = 64, most = 90;
  DeviceValues a{bench(), filled(m * k, 1.0F), kBf16}, b{bench(), filled(k * most, 2.0F), kBf16};
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t n = 16; n <= most; ++n) {
      DeviceValues c{bench(), m * n, kFp32};
      table().matmul({a.values(), b.values(), c.values(), m, n, k}, stream());
      ASSERT_EQ(c.floats(), filled(m * n, 256.0F)) << n;
    }
  }
}

void multiply_in_every_way() {
  DeviceBench cpu{make_cpu_device()};
  for (const Dtypes& dtypes : kDtypes) {
    DeviceValues a{cpu, filled(256 * 64, 1.0F), dtypes.a};
    DeviceValues b{cpu, filled(64 * 96, 2.0F), dtypes.b};
    DeviceValues c{cpu, 256 * 96, dtypes.c};
    const MatMul p{.a = a.values(),
                   .b = b.values(),
                   .c = c.values(),
                   .m = 256,
                   .n = 96,
                   .k = 64,
                   .transpose_a = Transpose::yes};
    for (const MatMulAlgorithm algorithm : algorithms_of(p)) {
      matmul_with(algorithm, p, cpu.stream());
    }
  }
}

// Ranks are threads made for each run. Under the address sanitizer, which replaces malloc, the
// numbers below are zero.
TEST(MatMulMemory, OfAThreadIsFreedWithIt) {
  const auto held = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
  };
  for (int i = 0; i < 3; ++i) { std::thread{multiply_in_every_way}.join(); }
  const std::int64_t before = held();
  for (int i = 0; i < 20; ++i) { std::thread{multiply_in_every_way}.join(); }
  EXPECT_LT(held() - before, 1 << 20);
}

// The rank's thread may also run the user's OpenMP loops.
TEST(MatMulThreads, InsideAnOpenMpLoopRemainTheCallers) {
  const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (get == nullptr || set == nullptr) { GTEST_SKIP() << "no OpenMP in this build"; }
  const int before = get();
  set(5);
  multiply_in_every_way();
  std::vector<std::uint16_t> bits(64);
  const MatMul refused{{bits.data(), kFp16}, {bits.data(), kBf16}, {bits.data(), kFp16}, 3, 4, 5};
  EXPECT_THROW(onednn_matmul(refused), DeviceError);
  EXPECT_EQ(get(), 5);
  set(before);
}

// The gaps of A and C are full of NaN; C's still are afterwards.
TEST_F(MatMulAlgorithms, GapsBetweenRowsAreNeitherReadNorWritten) {
  for (const Dtypes& d : kDtypes) {
    for (const Size& size : {Size{3, 5, 7}, Size{70, 101, 33}, Size{300, 65, 70}}) {
      for (const Transpose ta : kTransposes) {
        for (const Write write : {Write::overwrite, Write::add}) {
          const std::int64_t a_columns = ta == Transpose::yes ? size.m : size.k;
          const std::int64_t a_stride = a_columns + 27, c_stride = size.n + 27;
          const Floats values = random_floats(size.m * size.k, 1);
          const Floats before = random_floats(size.m * size.n, 3);
          DeviceValues a{bench(), values, d.a};
          DeviceValues spread_a{bench(), with_gaps(values, a_columns, a_stride), d.a};
          DeviceValues b{bench(), random_floats(size.k * size.n, 2), d.b};
          DeviceValues c{bench(), before, d.c};
          MatMul p{a.values(), b.values(), c.values(),    size.m, size.n,
                   size.k,     ta,         Transpose::no, write};
          MatMul spread = p;
          spread.a = spread_a;
          spread.a_stride = a_stride;
          spread.c_stride = c_stride;
          for (const MatMulAlgorithm algorithm : algorithms_of(p)) {
            SCOPED_TRACE(testing::Message() << name_of(p) << to_string(algorithm));
            for (std::int64_t i = 0; i < size.m * size.n; ++i) {
              set_element(p.c, i, before[static_cast<std::size_t>(i)]);
            }
            matmul_with(algorithm, p, stream());
            DeviceValues spread_c{bench(), with_gaps(before, size.n, c_stride), d.c};
            spread.c = spread_c.values();
            matmul_with(algorithm, spread, stream());
            const Floats all = spread_c.floats();
            EXPECT_TRUE(same_bits(without_gaps(all, size.n, c_stride), c.floats()));
            EXPECT_EQ(std::count_if(all.begin(), all.end(), [](float x) { return std::isnan(x); }),
                      27 * size.m);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::matmul_algorithms_test
