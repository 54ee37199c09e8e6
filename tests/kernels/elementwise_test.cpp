#include "kernels/support.hpp"
#include "kernels/support/element.hpp"

namespace tessera::kernels {
namespace {

using ElementwiseTest = KernelTest;

TEST_F(ElementwiseTest, AccumulateAddsOnto) {
  for (const std::int64_t elems : kSizes) {
    const Floats from = random_floats(elems, 1);
    const Floats before = random_floats(elems, 2);
    Placed to{before, 3};
    cpu_.accumulate(to.data(), from.data(), elems, stream());
    Floats expected;
    for (std::size_t i = 0; i < from.size(); ++i) { expected.push_back(before[i] + from[i]); }
    EXPECT_TRUE(same_bits(to.values(), expected)) << elems;
    EXPECT_TRUE(to.guarded()) << elems;
  }
}

TEST_F(ElementwiseTest, ScaleMultiplies) {
  for (const std::int64_t elems : kSizes) {
    const Floats before = random_floats(elems, 3);
    Placed x{before, 5};
    cpu_.scale(x.data(), 0.3F, elems, stream());
    Floats expected;
    for (const float value : before) { expected.push_back(value * 0.3F); }
    EXPECT_TRUE(same_bits(x.values(), expected)) << elems;
    EXPECT_TRUE(x.guarded()) << elems;
  }
}

TEST_F(ElementwiseTest, ScaleByOneChangesNoBit) {
  Floats x{0.0F, -0.0F, 1e-45F, kInfinity, -3.0F};
  const Floats before = x;
  cpu_.scale(x.data(), 1.0F, std::ssize(x), stream());
  EXPECT_TRUE(same_bits(x, before));
}

std::vector<std::uint16_t> halves(const Floats& values, DType dtype) {
  std::vector<std::uint16_t> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    reference::write({bits.data(), dtype}, static_cast<std::int64_t>(i), values[i]);
  }
  return bits;
}

TEST_F(ElementwiseTest, SumsAndProductsOfSixteenBitsAreRoundedOnce) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const std::int64_t elems : kSizes) {
      const auto more = halves(random_floats(elems, 1), dtype);
      auto sum = halves(random_floats(elems, 2), dtype);
      auto product = sum;
      auto expected_sum = sum;
      auto expected_product = sum;
      for (std::int64_t i = 0; i < elems; ++i) {
        const float old = reference::read({sum.data(), dtype}, i);
        reference::write({expected_sum.data(), dtype}, i,
                         old + reference::read({more.data(), dtype}, i));
        reference::write({expected_product.data(), dtype}, i, old * 0.3F);
      }
      cpu_.accumulate({sum.data(), dtype}, {more.data(), dtype}, elems, stream());
      cpu_.scale({product.data(), dtype}, 0.3F, elems, stream());
      EXPECT_EQ(sum, expected_sum) << to_string(dtype) << " " << elems;
      EXPECT_EQ(product, expected_product) << to_string(dtype) << " " << elems;
    }
  }
}

TEST_F(ElementwiseTest, SixteenBitsAddOntoFp32Exactly) {
  const Floats more = random_floats(1000, 1);
  const auto low = halves(more, DType::bf16);
  Floats sum = random_floats(1000, 2);
  Floats expected = sum;
  for (std::int64_t i = 0; i < 1000; ++i) {
    expected[static_cast<std::size_t>(i)] += reference::read({low.data(), DType::bf16}, i);
  }
  cpu_.accumulate(sum.data(), {low.data(), DType::bf16}, 1000, stream());
  EXPECT_TRUE(same_bits(sum, expected));
}

TEST_F(ElementwiseTest, AddWritesTheSumAlsoInPlace) {
  for (const std::int64_t elems : kSizes) {
    SCOPED_TRACE(elems);
    const Floats a = random_floats(elems, 4);
    const Floats b = random_floats(elems, 5);
    Floats expected;
    for (std::size_t i = 0; i < a.size(); ++i) { expected.push_back(a[i] + b[i]); }
    Placed apart{filled(elems, kNan), 1};
    cpu_.add(a.data(), b.data(), apart.data(), elems, stream());
    EXPECT_TRUE(same_bits(apart.values(), expected));
    EXPECT_TRUE(apart.guarded());
    Floats first = a;
    cpu_.add(first.data(), b.data(), first.data(), elems, stream());
    EXPECT_TRUE(same_bits(first, expected));
    Floats second = b;
    cpu_.add(a.data(), second.data(), second.data(), elems, stream());
    EXPECT_TRUE(same_bits(second, expected));
  }
}

}  // namespace
}  // namespace tessera::kernels
