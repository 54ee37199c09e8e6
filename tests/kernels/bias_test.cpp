#include "kernels/bias/bias.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
constexpr Size kMatrices[] = {{0, 5},   {5, 0},    {1, 1},    {3, 7},    {31, 33},
                              {33, 31}, {64, 100}, {100, 64}, {257, 255}};

TEST(BiasReference, ByHand) {
  Floats y{1, 2, 3, 4};
  const Floats bias{10, 20};
  reference::add_bias(y.data(), bias.data(), 2, 2, Stream{});
  EXPECT_EQ(y, (Floats{11, 22, 13, 24}));
  Floats dbias{100, 200};
  reference::bias_gradient(y.data(), dbias.data(), 2, 2, Stream{});
  EXPECT_EQ(dbias, (Floats{124, 246}));
}

using BiasTest = KernelTest;

TEST_F(BiasTest, AddBiasMatchesReferenceToTheBit) {
  for (const auto [rows, columns] : kMatrices) {
    const Floats bias = random_floats(columns, 1);
    Floats expected = random_floats(rows * columns, 2);
    Placed actual{expected, 1};
    reference::add_bias(expected.data(), bias.data(), rows, columns, Stream{});
    cpu_.add_bias(actual.data(), bias.data(), rows, columns, stream());
    EXPECT_TRUE(same_bits(actual.values(), expected)) << rows << " x " << columns;
    EXPECT_TRUE(actual.guarded());
  }
}

// fp32 sums of blocks of 32 rows, then of the blocks: an error of at most
// (32 + rows / 32 + 1) u times the sum of magnitudes.
TEST_F(BiasTest, GradientMatchesReference) {
  for (const auto [rows, columns] : kMatrices) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const Floats dy = random_floats(rows * columns, 3);
    Floats expected = random_floats(columns, 4);
    Placed actual{expected, 7};
    reference::bias_gradient(dy.data(), expected.data(), rows, columns, Stream{});
    cpu_.bias_gradient(dy.data(), actual.data(), rows, columns, stream());
    const auto n = static_cast<double>(rows);
    EXPECT_LE(largest_difference(actual.values(), expected),
              (34 + n / 32) * std::ldexp(1.0, -24) * (n + 4));
    EXPECT_TRUE(actual.guarded());
  }
}

TEST_F(BiasTest, GradientBitsDoNotDependOnTheStart) {
  const Floats dy = random_floats(100 * 77, 5);
  const Floats before = random_floats(77, 6);
  Floats expected = before;
  cpu_.bias_gradient(dy.data(), expected.data(), 100, 77, stream());
  for (std::size_t offset = 0; offset < 17; ++offset) {
    Placed placed_dy{dy, offset};
    Placed actual{before, 16 - offset};
    cpu_.bias_gradient(placed_dy.data(), actual.data(), 100, 77, stream());
    EXPECT_TRUE(same_bits(actual.values(), expected)) << offset;
  }
}

}  // namespace
}  // namespace tessera::kernels
