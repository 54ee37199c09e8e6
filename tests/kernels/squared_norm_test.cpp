#include "kernels/squared_norm/squared_norm.hpp"

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::squared_norm_test {
namespace {

constexpr std::int64_t kSpanElems = kSquaredNormSpan * kSquaredNormBlock;

double reference_norm(ConstValues x, std::int64_t elems, double start = 0.0) {
  reference::squared_norm(std::array{NormTerm{x, elems, &start}}, Stream{});
  return start;
}

TEST(SquaredNormReference, AddsSquaresOntoTheSum) {
  const Floats x{3.0F, -4.0F};
  EXPECT_EQ(reference_norm(x.data(), 2, 100.0), 125.0);
  EXPECT_EQ(reference_norm(x.data(), 0, 7.0), 7.0);
}

// Lane l of a block adds elements l, l + 16, ... Fifteen lanes hold 3, which rounds to 4 when added
// to 2^54 (fp64 values are 4 apart there). Added one by one, every 1 would be lost.
TEST(SquaredNormReference, AddsInTheDocumentedOrder) {
  Floats x(48, 1.0F);
  x[0] = std::ldexp(1.0F, 27);
  EXPECT_EQ(reference_norm(x.data(), 48), std::ldexp(1.0, 54) + 15 * 4);
}

// 64 blocks with a single 1 each add up to 64, which is not lost next to 2^54. Added one by one,
// they would be lost like the 63 in the span of the large value.
TEST(SquaredNormReference, AddsSpansOfBlocks) {
  Floats x(3 * 64 * 4096, 0.0F);
  for (std::size_t block = 0; block < std::size_t{3} * 64; ++block) {
    x[std::size_t{4096} * block] = 1.0F;
  }
  x[0] = std::ldexp(1.0F, 27);
  EXPECT_EQ(reference_norm(x.data(), std::ssize(x)), std::ldexp(1.0, 54) + 2 * 64);
}

TEST(SquaredNormReference, OfSixteenBitsIsThatOfTheirValues) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const std::int64_t elems : {0, 1, 17, 511, 513, 4097, 10'003}) {
      HostValues low{dtype, random_floats(elems, 5)};
      const Floats wide = low.floats();
      EXPECT_EQ(reference_norm(low.view(), elems, 0.125), reference_norm(wide.data(), elems, 0.125))
          << elems;
    }
  }
}

// Some spans, none, and more than are summed at once.
TEST(SpanSums, AddedInOrderEqualTheNorm) {
  DeviceBench cpu{make_cpu_device()};
  for (const std::int64_t elems : {0, 1, 4097, 64 * 4096, 3 * 64 * 4096 + 17, 17 * 64 * 4096 + 1}) {
    const Floats x = random_floats(elems, 8);
    std::vector<double> spans(static_cast<std::size_t>(squared_norm_spans(elems)));
    EXPECT_EQ(std::ssize(spans), (elems + 64 * 4096 - 1) / (64 * 4096));
    cpu::span_sums(x.data(), elems, spans.data(), cpu.stream());
    double sum = 0.125;
    for (const double span : spans) { sum += span; }
    EXPECT_EQ(sum, reference_norm(x.data(), elems, 0.125)) << elems;
  }
}

class SquaredNormKernels : public BackendTest {
 protected:
  double norm(ConstValues x, std::int64_t elems, double start = 0.125) {
    DeviceArray<double> sum{bench(), std::vector<double>{start}};
    table().squared_norm(std::array{NormTerm{x, elems, sum.data()}}, stream());
    return sum.read().front();
  }
  double norm(const Floats& x) {
    DeviceArray<float> device{bench(), x};
    return norm(device.data(), device.elems(), 0.0);
  }
  void expect_norm(std::int64_t elems, DType dtype, std::int64_t offset = 0) {
    const Floats x = random_floats(elems, 5);
    HostValues host{dtype, x};
    DeviceValues device{bench(), x, dtype, offset};
    EXPECT_EQ(norm(device, elems), reference_norm(host.view(), elems, 0.125))
        << elems << " " << to_string(dtype) << " at " << offset;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, SquaredNormKernels, backends(), backend_name);

TEST_P(SquaredNormKernels, HaveTheReferencesBitsWhereverTheyStart) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t elems : kSizes) { expect_norm(elems, dtype); }
    for (const std::int64_t elems :
         {15, 16, 17, 511, 513, 4095, 4096, 4097, 8192, 10'003, 70'000}) {
      expect_norm(elems, dtype);
    }
    for (std::int64_t offset = 1; offset < 17; ++offset) { expect_norm(9001, dtype, offset); }
  }
}

TEST_P(SquaredNormKernels, AddSpansInOrder) {
  expect_norm(kSpanElems, DType::bf16);
  for (const std::int64_t elems :
       {kSpanElems - 1, kSpanElems, kSpanElems + 1, 3 * kSpanElems + 5001, 9 * kSpanElems + 5000}) {
    expect_norm(elems, DType::fp32);
  }
}

// Adds to several sums in turn, of all dtypes, with more arrays than one CUDA launch takes; some
// are longer than its workspace.
TEST_P(SquaredNormKernels, AddTheTermsOfATableInOrder) {
  const SmallWorkspace spans{bench(), 700 * kSquaredNormSpan * sizeof(double)};
  std::vector<std::unique_ptr<DeviceValues>> arrays;
  std::vector<std::unique_ptr<HostValues>> same;
  DeviceArray<double> sums{bench(), std::vector<double>{0.5, 0.25, 0.125}};
  std::vector<double> expected{0.5, 0.25, 0.125};
  std::vector<NormTerm> terms;
  for (std::size_t i = 0; i < 1300; ++i) {
    const bool large = i == 3 || i == 1200;
    const std::int64_t elems = large ? kSpanElems + 4097 : static_cast<std::int64_t>(i * 7 % 90);
    const DType dtype = kValueDTypes[i < 1250 ? 1 : i % 3];
    const Floats x = random_floats(elems, static_cast<unsigned>(i));
    arrays.push_back(std::make_unique<DeviceValues>(bench(), x, dtype, 0));
    same.push_back(std::make_unique<HostValues>(dtype, x));
    const std::size_t to = i < 600 ? i / 200 : i % 3;
    terms.push_back({*arrays.back(), elems, sums.data() + to});
    expected[to] = reference_norm(same.back()->view(), elems, expected[to]);
  }
  table().squared_norm(terms, stream());
  EXPECT_EQ(sums.read(), expected);
}

TEST_P(SquaredNormKernels, AreCloseToTheExactSum) {
  const Floats x = random_floats(100'003, 7);
  long double exact = 0.0L;
  for (const float value : x) {
    exact += static_cast<long double>(value) * static_cast<long double>(value);
  }
  // bound: fp64; at random sqrt(100003) 2^-53 = 4e-14
  EXPECT_NEAR(norm(x), static_cast<double>(exact), 1e-12 * static_cast<double>(exact));
}

TEST_P(SquaredNormKernels, AreFiniteExactlyIfEveryElementIs) {
  for (const std::size_t at : {0U, 17U, 4999U}) {
    Floats x = random_floats(5000, 8);
    x[at] = std::numeric_limits<float>::max();
    EXPECT_TRUE(std::isfinite(norm(x)));
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      x[at] = bad;
      EXPECT_FALSE(std::isfinite(norm(x)));
    }
  }
}

class SquaredNormOnCuda : public SquaredNormKernels {};
INSTANTIATE_TEST_SUITE_P(Backends, SquaredNormOnCuda, cuda_alone(), backend_name);

TEST_P(SquaredNormOnCuda, GoesOverALongArrayInPieces) {
  {
    const SmallWorkspace two_spans{bench(), 2 * kSquaredNormSpan * sizeof(double)};
    expect_norm(5 * kSpanElems + 77, DType::bf16);
  }
  for (const std::size_t bytes : {kSquaredNormSpan * sizeof(double) - 1, std::size_t{0}}) {
    const SmallWorkspace too_small{bench(), bytes};
    EXPECT_THROW((void)norm(nullptr, 1), ContractError);
  }
}

// A block adds 1,024 spans at once. Here these end within a term, and a term of other elements than
// the first ones' follows it. In the emulation the order of threads differs between launches.
TEST_P(SquaredNormOnCuda, AddsMoreSpansThanItsBlockHasThreads) {
  const Floats x = random_floats(5 * kSpanElems + 1, 9);
  HostValues host{DType::bf16, x};
  DeviceValues device{bench(), x, DType::bf16};
  std::vector<std::int64_t> elems(512, kSpanElems + 1);  // two spans
  elems.front() = 1;
  elems[510] = std::ssize(x);  // spans 1,019 to 1,024
  const std::int64_t last = 2 * kSpanElems;
  const double two_spans = reference_norm(host.view(), kSpanElems + 1, 0.125);
  std::vector<double> expected(elems.size(), two_spans);
  expected.front() = reference_norm(host.view(), elems.front(), 0.125);
  expected[510] = reference_norm(host.view(), elems[510], 0.125);
  expected.back() = reference_norm(host.view().at(last), elems.back(), 0.125);
  for (int round = 0; round < 3; ++round) {
    DeviceArray<double> sums{bench(), std::vector<double>(elems.size(), 0.125)};
    std::vector<NormTerm> terms;
    for (std::size_t i = 0; i < elems.size(); ++i) {
      terms.push_back({device, elems[i], sums.data() + i});
    }
    terms.back().x = device.values().at(last);
    table().squared_norm(terms, stream());
    EXPECT_EQ(sums.read(), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace tessera::kernels::squared_norm_test
