#include "kernels/support.hpp"

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
