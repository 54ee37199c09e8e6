#include "kernels/squared_norm/squared_norm.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

double reference_norm(const float* x, std::int64_t elems, double start = 0.0) {
  reference::squared_norm(x, elems, &start, Stream{});
  return start;
}

TEST(SquaredNormReference, AddsSquaresOntoTheSum) {
  const Floats x{3.0F, -4.0F};
  EXPECT_EQ(reference_norm(x.data(), 2, 100.0), 125.0);
  EXPECT_EQ(reference_norm(x.data(), 0, 7.0), 7.0);
}

// Lane l of a block takes elements l, l + 16, ...: fifteen lanes hold 3, which onto 2^54 rounds to
// 4 (fp64 values are 4 apart there). Added one by one, every 1 would be lost.
TEST(SquaredNormReference, AddsInTheDocumentedOrder) {
  Floats x(48, 1.0F);
  x[0] = std::ldexp(1.0F, 27);
  EXPECT_EQ(reference_norm(x.data(), 48), std::ldexp(1.0, 54) + 15 * 4);
}

// 64 blocks of one 1 each come to 64, which counts beside 2^54; one by one they would be lost, as
// the 63 are that share a span with the large one.
TEST(SquaredNormReference, AddsSpansOfBlocks) {
  Floats x(3 * 64 * 4096, 0.0F);
  for (std::size_t block = 0; block < 3U * 64U; ++block) { x[4096 * block] = 1.0F; }
  x[0] = std::ldexp(1.0F, 27);
  EXPECT_EQ(reference_norm(x.data(), std::ssize(x)), std::ldexp(1.0, 54) + 2 * 64);
}

using SquaredNormTest = KernelTest;

TEST_F(SquaredNormTest, MatchesReferenceToTheBit) {
  for (const std::int64_t elems :
       {0, 1, 15, 16, 17, 31, 32, 33, 255, 257, 4095, 4096, 4097, 8192, 100'003, 64 * 4096 - 1,
        64 * 4096, 64 * 4096 + 1, 9 * 64 * 4096 + 5000}) {
    SCOPED_TRACE(elems);
    const Floats x = random_floats(elems, 5);
    double actual = 0.125;
    cpu_.squared_norm(x.data(), elems, &actual, stream());
    EXPECT_EQ(actual, reference_norm(x.data(), elems, 0.125));
  }
}

// Some spans, none, and more than are summed at once.
TEST_F(SquaredNormTest, SpanSumsAddedInOrderAreTheNorm) {
  for (const std::int64_t elems : {0, 1, 4097, 64 * 4096, 3 * 64 * 4096 + 17, 17 * 64 * 4096 + 1}) {
    const Floats x = random_floats(elems, 8);
    std::vector<double> spans(static_cast<std::size_t>(squared_norm_spans(elems)));
    EXPECT_EQ(std::ssize(spans), (elems + 64 * 4096 - 1) / (64 * 4096));
    cpu::span_sums(x.data(), elems, spans.data(), stream());
    double sum = 0.125;
    for (const double span : spans) { sum += span; }
    EXPECT_EQ(sum, reference_norm(x.data(), elems, 0.125)) << elems;
  }
}

TEST_F(SquaredNormTest, OfSixteenBitsIsThatOfTheirValues) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const std::int64_t elems : {0, 1, 17, 511, 513, 4097, 10'003}) {
      const Floats x = random_floats(elems, 5);
      std::vector<std::uint16_t> low(x.size());
      Floats wide(x.size());
      cpu_.cast({low.data(), elems, dtype}, {x.data(), elems, DType::fp32}, stream());
      cpu_.cast({wide.data(), elems, DType::fp32}, {low.data(), elems, dtype}, stream());
      double actual = 0.125;
      double reference = 0.125;
      cpu_.squared_norm({low.data(), dtype}, elems, &actual, stream());
      reference::squared_norm({low.data(), dtype}, elems, &reference, Stream{});
      EXPECT_EQ(actual, reference_norm(wide.data(), elems, 0.125)) << elems;
      EXPECT_EQ(reference, actual) << elems;
    }
  }
}

TEST_F(SquaredNormTest, StartDoesNotChangeTheBits) {
  const Floats x = random_floats(9001, 6);
  const double expected = reference_norm(x.data(), 9001);
  for (std::size_t offset = 0; offset < 17; ++offset) {
    Placed placed{x, offset};
    double actual = 0.0;
    cpu_.squared_norm(placed.data(), 9001, &actual, stream());
    EXPECT_EQ(actual, expected) << "offset " << offset;
  }
}

TEST_F(SquaredNormTest, IsCloseToTheExactSum) {
  const Floats x = random_floats(100'003, 7);
  long double exact = 0.0L;
  for (const float value : x) {
    exact += static_cast<long double>(value) * static_cast<long double>(value);
  }
  double actual = 0.0;
  cpu_.squared_norm(x.data(), std::ssize(x), &actual, stream());
  EXPECT_NEAR(actual, static_cast<double>(exact), 1e-12 * static_cast<double>(exact));
}

TEST_F(SquaredNormTest, IsFiniteExactlyIfEveryElementIs) {
  for (const std::size_t at : {0U, 17U, 4999U}) {
    Floats x = random_floats(5000, 8);
    x[at] = std::numeric_limits<float>::max();
    double sum = 0.0;
    cpu_.squared_norm(x.data(), 5000, &sum, stream());
    EXPECT_TRUE(std::isfinite(sum));
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      x[at] = bad;
      sum = 0.0;
      cpu_.squared_norm(x.data(), 5000, &sum, stream());
      EXPECT_FALSE(std::isfinite(sum));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
