// The bits of a row of a product do not depend on the rows that are computed with it.
#include <cstring>
#include <string>

#include "base/environment.hpp"
#include "kernels/matmul/matmul_algorithms.hpp"
#include "kernels/matmul_exact.hpp"

namespace tessera::kernels::matmul_rows_test {
namespace {

using exact_products::kTransposes;
using exact_products::kWrites;

constexpr DType kFp32 = DType::fp32, kBf16 = DType::bf16, kFp16 = DType::fp16;

struct Dtypes {
  DType a, b, c;
};
constexpr Dtypes kDtypes[] = {{kFp32, kFp32, kFp32},
                              {kBf16, kBf16, kFp32},
                              {kBf16, kBf16, kBf16},
                              {kFp16, kFp16, kFp32},
                              {kFp32, kBf16, kFp32}};

/// n, k, and the distance of the numbers of rows that are tried: 1 tries all.
struct Shape {
  std::int64_t n, k, step;
};
// Around the blocks of every algorithm: registers of 8 to 48 columns; sums of 256, 288 or more;
// 4,096 elements of B, where oneDNN begins; blocks of 384 columns.
constexpr Shape kShapes[] = {{1, 77, 1},    {2, 64, 1},     {5, 19, 1},     {43, 61, 1},
                             {64, 64, 1},   {50, 290, 1},   {130, 520, 29}, {33, 3072, 41},
                             {400, 70, 31}, {24, 1500, 37}, {130, 930, 43}};
constexpr std::int64_t kMostRows = 400;

/// With TESSERA_TEST_ROWS=all in the environment, every shape is tried with every number of rows,
/// and more shapes are (minutes).
bool all_of_them() {
  return environment("TESSERA_TEST_ROWS").value_or("") == "all";
}

/// Where matrices lie: elements after an aligned address, and gaps between rows.
struct Place {
  std::int64_t start, a_gap, c_gap;
};
constexpr Place kPlaces[] = {{0, 0, 0}, {1, 0, 0},  {3, 0, 5},  {0, 16, 0},
                             {5, 1, 0}, {16, 7, 3}, {8, 64, 16}};

/// Elements of a matrix on the host, `start` elements after an aligned address.
class Matrix {
 public:
  Matrix(DType dtype, std::int64_t elems, std::int64_t start)
      : dtype_{dtype}, start_{start}, bytes_(static_cast<std::size_t>(elems + start) * 4 + 64) {}
  [[nodiscard]] Values values() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    const std::size_t to_line = (64 - address % 64) % 64;
    return Values{bytes_.data() + to_line, dtype_}.at(start_);
  }

 private:
  DType dtype_;
  std::int64_t start_;
  Bytes bytes_;
};

/// One kind of product, whose rows are computed alone and together.
class Rows {
 public:
  Rows(const Dtypes& dtypes, const Shape& shape, Transpose ta, Transpose tb, Write write)
      : dtypes_{dtypes},
        shape_{shape},
        ta_{ta},
        tb_{tb},
        write_{write},
        a_{encoded(random_floats(kMostRows * shape.k, 1), dtypes.a)},
        b_{encoded(random_floats(shape.k * shape.n, 2), dtypes.b)},
        c_{encoded(random_floats(kMostRows * shape.n, 3), dtypes.c)} {}

  [[nodiscard]] MatMul kind() const {
    MatMul p{{nullptr, dtypes_.a},
             {nullptr, dtypes_.b},
             {nullptr, dtypes_.c},
             kMostRows,
             shape_.n,
             shape_.k,
             ta_,
             tb_,
             write_};
    return p;
  }

  /// The bytes of rows [first, first + m) of C, one after the other.
  Bytes computed(std::int64_t first, std::int64_t m, const Place& place, MatMulAlgorithm algorithm,
                 Stream stream) {
    const std::int64_t n = shape_.n, k = shape_.k;
    const bool transposed = ta_ == Transpose::yes;
    const std::int64_t a_stride = (transposed ? m : k) + place.a_gap, c_stride = n + place.c_gap;
    Matrix a{dtypes_.a, (transposed ? k : m) * a_stride, place.start};
    Matrix b{dtypes_.b, n * k, 3 * place.start % 7};
    Matrix c{dtypes_.c, m * c_stride, 5 * place.start % 11};
    const auto copy = [](Values to, const Bytes& from, std::int64_t at, std::int64_t elems) {
      const std::size_t size = size_of(to.dtype);
      std::memcpy(to.data, from.data() + static_cast<std::size_t>(at) * size,
                  static_cast<std::size_t>(elems) * size);
    };
    for (std::int64_t r = 0; r < m; ++r) {
      copy(c.values().at(r * c_stride), c_, (first + r) * n, n);
      if (transposed) {
        for (std::int64_t l = 0; l < k; ++l) {
          copy(a.values().at(l * a_stride + r), a_, (first + r) * k + l, 1);
        }
      } else {
        copy(a.values().at(r * a_stride), a_, (first + r) * k, k);
      }
    }
    copy(b.values(), b_, 0, n * k);
    MatMul p = kind();
    p.a = a.values();
    p.b = b.values();
    p.c = c.values();
    p.m = m;
    p.a_stride = a_stride;
    p.c_stride = c_stride;
    matmul_with(algorithm, p, stream);
    const std::size_t row_bytes = static_cast<std::size_t>(n) * size_of(dtypes_.c);
    Bytes rows(static_cast<std::size_t>(m) * row_bytes);
    for (std::int64_t r = 0; r < m; ++r) {
      std::memcpy(rows.data() + static_cast<std::size_t>(r) * row_bytes,
                  c.values().at(r * c_stride).data, row_bytes);
    }
    return rows;
  }

 private:
  Dtypes dtypes_;
  Shape shape_;
  Transpose ta_, tb_;
  Write write_;
  Bytes a_, b_, c_;  ///< A not transposed; C before the product
};

std::string name_of(const Dtypes& d, const Shape& s, Transpose ta, Transpose tb, Write write) {
  std::string name = "n " + std::to_string(s.n) + " k " + std::to_string(s.k);
  for (const DType dtype : {d.a, d.b, d.c}) { name += " " + std::string{to_string(dtype)}; }
  name += " transposed " + std::to_string(int(ta)) + std::to_string(int(tb));
  return name + (write == Write::add ? " added" : "");
}

// Every row of m = 1, 2, ... rows, at several places, against the row computed alone.
void expect_the_bits_of_rows_alone(const Dtypes& dtypes, const Shape& shape, Transpose ta,
                                   Transpose tb, Write write, const DeviceBench& cpu) {
  Rows rows{dtypes, shape, ta, tb, write};
  const std::size_t row_bytes = static_cast<std::size_t>(shape.n) * size_of(dtypes.c);
  for (const MatMulAlgorithm algorithm : algorithms_of(rows.kind())) {
    Bytes alone;
    for (std::int64_t r = 0; r < kMostRows; ++r) {
      const Bytes row = rows.computed(r, 1, kPlaces[0], algorithm, cpu.stream());
      alone.insert(alone.end(), row.begin(), row.end());
    }
    const std::int64_t step = all_of_them() ? 1 : shape.step;
    for (std::int64_t m = 1; m <= kMostRows; m += m < 18 ? 1 : step) {
      const Place& place = kPlaces[static_cast<std::size_t>(m + m / 7) % std::size(kPlaces)];
      const std::int64_t first = m * 31 % (kMostRows - m + 1);
      const Bytes together = rows.computed(first, m, place, algorithm, cpu.stream());
      for (std::int64_t r = 0; r < m; ++r) {
        const std::byte* const expected =
            alone.data() + static_cast<std::size_t>(first + r) * row_bytes;
        ASSERT_EQ(std::memcmp(together.data() + static_cast<std::size_t>(r) * row_bytes, expected,
                              row_bytes),
                  0)
            << to_string(algorithm) << ", " << name_of(dtypes, shape, ta, tb, write) << ": row "
            << r << " of " << m << ", which starts " << place.start
            << " elements after a line, with gaps of " << place.a_gap << " and " << place.c_gap;
      }
    }
  }
}

class MatMulRows : public testing::TestWithParam<Dtypes> {};
std::string dtypes_of(const testing::TestParamInfo<Dtypes>& tested) {
  std::string name;
  for (const DType dtype : {tested.param.a, tested.param.b, tested.param.c}) {
    name += (name.empty() ? "" : "_") + std::string{to_string(dtype)};
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Of, MatMulRows, testing::ValuesIn(kDtypes), dtypes_of);

TEST_P(MatMulRows, HaveTheBitsOfTheRowAlone) {
  const DeviceBench cpu{make_cpu_device({.threads = 2})};
  std::vector<Shape> shapes{std::begin(kShapes), std::end(kShapes)};
  if (all_of_them()) {
    for (const std::int64_t n : {3, 23, 48, 96, 257}) {
      for (const std::int64_t k : {1, 8, 63, 151, 256, 433, 1030}) { shapes.push_back({n, k, 1}); }
    }
  }
  int kinds = 0;
  for (const Shape& shape : shapes) {
    if (TESSERA_SANITIZED && shape.n * shape.k > 8'000) { continue; }
    for (const Transpose ta : kTransposes) {
      for (const Transpose tb : kTransposes) {
        // Both kinds of writing, in turn.
        const Write write = kWrites[kinds++ / 3 % 2];
        expect_the_bits_of_rows_alone(GetParam(), shape, ta, tb, write, cpu);
        if (HasFatalFailure()) { return; }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::matmul_rows_test
