#include "kernels/matmul/matmul.hpp"

#include "kernels/support.hpp"
#include "kernels/support/product.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

struct Size {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};
constexpr Size kProducts[] = {{0, 3, 4},   {3, 0, 4},    {3, 4, 0},     {1, 1, 1},    {2, 3, 4},
                              {1, 65, 33}, {65, 1, 33},  {65, 33, 1},   {7, 8, 9},    {16, 16, 16},
                              {31, 33, 5}, {64, 64, 64}, {50, 70, 129}, {3, 300, 700}};
constexpr Transpose kTransposes[] = {Transpose::no, Transpose::yes};

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

using MatMulTest = KernelTest;

// |error| <= (k + 1) u times the sum of magnitudes; checked on random data with twice the typical
// sum, to stay far below what one wrong product would give.
TEST_F(MatMulTest, MatchesReference) {
  for (const auto& [m, n, k] : kProducts) {
    for (const Transpose ta : kTransposes) {
      for (const Transpose tb : kTransposes) {
        for (const Write write : {Write::overwrite, Write::add}) {
          SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " transposed "
                                          << int(ta) << int(tb) << " write " << int(write));
          const Floats a = random_floats(m * k, 1);
          const Floats b = random_floats(k * n, 2);
          Floats expected = write == Write::add ? random_floats(m * n, 3) : filled(m * n, kNan);
          Placed actual{expected, 3};
          reference::matmul({a.data(), b.data(), expected.data(), m, n, k, ta, tb, write},
                            Stream{});
          cpu_.matmul({a.data(), b.data(), actual.data(), m, n, k, ta, tb, write}, stream());
          const auto terms = static_cast<double>(k + 1);
          EXPECT_LE(largest_difference(actual.values(), expected),
                    2 * terms * terms * std::ldexp(1.0, -24));
          EXPECT_TRUE(actual.guarded());
        }
      }
    }
  }
}

// Whole numbers: every product and sum is exact, whatever the order.
TEST_F(MatMulTest, IsExactOnWholeNumbers) {
  std::mt19937 generator{1};
  std::uniform_int_distribution<int> uniform{-8, 8};
  Floats a(200 * 300), b(300 * 100);
  for (float& value : a) { value = static_cast<float>(uniform(generator)); }
  for (float& value : b) { value = static_cast<float>(uniform(generator)); }
  Floats expected = filled(200 * 100, kNan), actual = filled(200 * 100, kNan);
  reference::matmul({a.data(), b.data(), expected.data(), 200, 100, 300}, Stream{});
  cpu_.matmul({a.data(), b.data(), actual.data(), 200, 100, 300}, stream());
  EXPECT_EQ(actual, expected);
}

// Slots and arenas put the same matrix at other addresses in other strategies.
TEST_F(MatMulTest, BitsDoNotDependOnTheAddresses) {
  for (const auto& [m, n, k] : kProducts) {
    for (const Transpose ta : kTransposes) {
      for (const Transpose tb : kTransposes) {
        const Floats a = random_floats(m * k, 4);
        const Floats b = random_floats(k * n, 5);
        const Floats before = random_floats(m * n, 6);
        Floats expected = before;
        cpu_.matmul({a.data(), b.data(), expected.data(), m, n, k, ta, tb, Write::add}, stream());
        for (const std::size_t offset : {0U, 1U, 2U, 3U, 5U, 8U, 13U, 16U, 64U, 128U}) {
          Placed pa{a, offset}, pb{b, (3 * offset) % 17}, pc{before, (5 * offset + 1) % 17};
          cpu_.matmul({pa.data(), pb.data(), pc.data(), m, n, k, ta, tb, Write::add}, stream());
          ASSERT_TRUE(same_bits(pc.values(), expected))
              << m << " x " << n << " x " << k << " offset " << offset;
        }
      }
    }
  }
}

TEST_F(MatMulTest, OverwriteIsAddOntoZero) {
  const Floats a = random_floats(40 * 50, 7), b = random_floats(50 * 60, 8);
  Floats added = filled(40 * 60, 0.0F), written = filled(40 * 60, kNan);
  cpu_.matmul({.a = a.data(),
               .b = b.data(),
               .c = added.data(),
               .m = 40,
               .n = 60,
               .k = 50,
               .write = Write::add},
              stream());
  cpu_.matmul({a.data(), b.data(), written.data(), 40, 60, 50}, stream());
  EXPECT_TRUE(same_bits(added, written));
}

TEST_F(MatMulTest, RefusesStridesThatDoNotFit) {
  Floats a(6), b(6), c(6);
  MatMul product{a.data(), b.data(), c.data(), 2, 3, 2};
  product.c_stride = 2;
  EXPECT_THROW(cpu_.matmul(product, stream()), ContractError);
  product.c_stride = 0;
  product.a_stride = 1;
  EXPECT_THROW(cpu_.matmul(product, stream()), ContractError);
  product.a_stride = 0;
  product.c_stride = 4;
  product.bias = b.data();
  EXPECT_THROW(cpu_.matmul(product, stream()), ContractError);
}

TEST_F(MatMulTest, AnEmptySumOverwritesWithZero) {
  Floats c(6, kNan);
  cpu_.matmul({nullptr, nullptr, c.data(), 2, 3, 0}, stream());
  EXPECT_EQ(c, Floats(6, 0.0F));
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
  EXPECT_NEAR(c[0], 0.0F, 1e-6F);
  EXPECT_NEAR(c[1], 5.0F, 1e-5F);

  z = {0, 20};  // slopes 1/2 and 1
  product.bias = {};
  product.epilogue = Epilogue::gelu_gradient;
  reference::matmul(product, Stream{});
  EXPECT_EQ(c, (Floats{1.5F, 4}));
}

// Whoever takes the steps himself gets the same training, to the bit.
TEST_F(MatMulTest, EpiloguesAreTheKernelsThatTheyName) {
  constexpr std::int64_t m = 37, n = 45, k = 70;
  const Floats a = random_floats(m * k, 1), b = random_floats(k * n, 2), bias = random_floats(n, 3);
  Floats z(m * n), y(m * n), slope(m * n);
  cpu_.matmul({a.data(), b.data(), z.data(), m, n, k}, stream());
  const Floats product = z;
  cpu_.add_bias(z.data(), bias.data(), m, n, stream());
  cpu_.gelu_forward(z.data(), y.data(), m * n, stream());
  cpu_.gelu_backward(z.data(), product.data(), slope.data(), m * n, stream());

  Floats fused_z(m * n, kNan), fused(m * n, kNan);
  MatMul p{a.data(), b.data(), fused.data(), m, n, k};
  p.bias = bias.data();
  cpu_.matmul(p, stream());
  EXPECT_TRUE(same_bits(fused, z));
  p.epilogue = Epilogue::gelu;
  p.pre_gelu = fused_z.data();
  cpu_.matmul(p, stream());
  EXPECT_TRUE(same_bits(fused_z, z));
  EXPECT_TRUE(same_bits(fused, y));
  p.bias = {};
  p.epilogue = Epilogue::gelu_gradient;
  cpu_.matmul(p, stream());
  EXPECT_TRUE(same_bits(fused, slope));
}

TEST_F(MatMulTest, BiasAndEpilogueOfWhatIsAddedAreRefused) {
  Floats x(4, 1.0F);
  const MatMul plain{x.data(), x.data(), x.data(), 1, 1, 1};
  const auto refused = [&](auto&& change) {
    MatMul p = plain;
    change(p);
    EXPECT_THROW(cpu_.matmul(p, stream()), ContractError);
  };
  refused([&](MatMul& p) { p.bias = x.data(), p.write = Write::add; });
  refused(
      [&](MatMul& p) { p.epilogue = Epilogue::gelu, p.pre_gelu = x.data(), p.write = Write::add; });
  refused([&](MatMul& p) { p.epilogue = Epilogue::gelu; });
  refused([&](MatMul& p) { p.epilogue = Epilogue::gelu, p.pre_gelu = {x.data(), DType::bf16}; });
  refused([&](MatMul& p) {
    p.epilogue = Epilogue::gelu_gradient, p.pre_gelu = x.data(), p.bias = x.data();
  });
}

// One of them runs under matmul; the other is what another processor would take.
TEST(ProductVariants, EachMatchesReferenceWithStrides) {
  constexpr std::int64_t m = 37, n = 45, k = 129, gap = 5;
  const Floats a = random_floats(m * k, 9), b = random_floats(k * n, 10);
  Floats expected = random_floats(m * n, 11);
  Floats wide(static_cast<std::size_t>(m * (n + gap)), 7.0F);
  for (std::int64_t i = 0; i < m; ++i) {
    std::copy_n(expected.data() + i * n, n, wide.data() + i * (n + gap));
  }
  reference::matmul({.a = a.data(),
                     .b = b.data(),
                     .c = expected.data(),
                     .m = m,
                     .n = n,
                     .k = k,
                     .write = Write::add},
                    Stream{});
  for (const ProductVariant& variant : product_variants()) {
    SCOPED_TRACE(variant.name);
    Floats c = wide;
    variant.run(
        {{a.data(), k}, Transpose::no, {b.data(), n}, Transpose::no, {c.data(), n + gap}, m, n, k});
    for (std::int64_t i = 0; i < m; ++i) {
      const std::span<const float> row{c.data() + i * (n + gap), static_cast<std::size_t>(n + gap)};
      EXPECT_LE(largest_difference(row.first(n), {expected.data() + i * n, n}), 1e-4);
      EXPECT_THAT(row.subspan(n), testing::Each(7.0F));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
