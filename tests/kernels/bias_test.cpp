#include "kernels/bias/bias.hpp"

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::bias_test {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
// Around the widths of registers, packs, warps, chunks and blocks.
constexpr Size kMatrices[] = {{0, 5},    {0, 8},    {5, 0},     {1, 1},     {3, 7},    {7, 3},
                              {37, 45},  {31, 33},  {33, 31},   {64, 100},  {100, 64}, {257, 255},
                              {65, 257}, {64, 768}, {1000, 64}, {1025, 40}, {9'000, 8}};

TEST(BiasReference, ByHand) {
  Floats y{1, 2, 3, 4};
  const Floats bias{10, 20};
  reference::add_bias(y.data(), bias.data(), 2, 2, Stream{});
  EXPECT_EQ(y, (Floats{11, 22, 13, 24}));
  Floats dbias{100, 200};
  reference::bias_gradient(y.data(), dbias.data(), 2, 2, Write::add, Stream{});
  EXPECT_EQ(dbias, (Floats{124, 246}));
}

class BiasKernels : public BackendTest {
 protected:
  /// Error bound of a sum over rows whose magnitudes add up to `size`. A CPU adds blocks of 32
  /// rows, then the blocks, each rounded to the dtype of the sum. For CUDA see BiasGradientKernel.
  static double bound(std::int64_t rows, double size, DType sum) {
    const std::int64_t spans = rows / 1024;
    if (on_cuda()) { return static_cast<double>(41 + spans) * kRoundoff * size; }
    const auto blocks = static_cast<double>(ceil_div<std::int64_t>(rows, 32));
    const double stored =
        sum == DType::fp32 ? 0.0 : std::max(0.0, blocks - 1) * rounding(sum, size);
    return (32 + static_cast<double>(rows) / 32) * kRoundoff * size + stored;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, BiasKernels, backends(), backend_name);

TEST_P(BiasKernels, AddHasTheBitsOfTheReference) {
  for (const DType dtype : kValueDTypes) {
    for (const DType other : kValueDTypes) {
      for (const auto [rows, columns] : kMatrices) {
        for (const std::int64_t offset : {0, 1}) {
          SCOPED_TRACE(testing::Message() << rows << " x " << columns);
          const Floats y = random_floats(rows * columns, 1), bias = random_floats(columns, 2);
          HostValues expected{dtype, y}, host_bias{other, bias};
          reference::add_bias(expected.view(), host_bias.view(), rows, columns, Stream{});
          DeviceValues actual{bench(), y, dtype, offset}, device_bias{bench(), bias, other, offset};
          table().add_bias(actual, device_bias, rows, columns, stream());
          EXPECT_EQ(actual.read(), expected.bytes());
        }
      }
    }
  }
}

TEST_P(BiasKernels, GradientIsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    for (const DType other : kValueDTypes) {
      for (const auto [rows, columns] : kMatrices) {
        SCOPED_TRACE(testing::Message() << rows << " x " << columns);
        Floats dy = rounded(dtype, random_floats(rows * columns, 3));
        Floats before = rounded(other, random_floats(columns, 4)), expected = before;
        reference::bias_gradient(dy.data(), expected.data(), rows, columns, Write::add, Stream{});
        Floats sizes = before, magnitudes = dy;
        for (float& size : sizes) { size = std::abs(size); }
        for (float& magnitude : magnitudes) { magnitude = std::abs(magnitude); }
        reference::bias_gradient(magnitudes.data(), sizes.data(), rows, columns, Write::add,
                                 Stream{});

        DeviceValues in{bench(), dy, dtype}, dbias{bench(), before, other, 7};
        table().bias_gradient(in, dbias, rows, columns, Write::add, stream());
        const std::int64_t of_rows = rows;
        expect_within(dbias.floats(), expected, other, [&](std::size_t c) {
          return bound(of_rows, static_cast<double>(sizes[c]), other);
        });
      }
    }
  }
}

TEST_P(BiasKernels, TheOrderOfTheGradientsSumDependsOnTheSizesAlone) {
  for (const DType dtype : kValueDTypes) {
    for (const auto [rows, columns] : {Size{100, 77}, Size{300, 1016}}) {
      const Floats dy = random_floats(rows * columns, 5), before = random_floats(columns, 6);
      DeviceValues in{bench(), dy, dtype}, dbias{bench(), before, DType::fp32};
      table().bias_gradient(in, dbias, rows, columns, Write::add, stream());
      for (std::int64_t offset = 0; offset < 17; offset += rows == 100 ? 1 : 5) {
        DeviceValues moved{bench(), dy, dtype, offset};
        DeviceValues again{bench(), before, DType::fp32, 16 - offset};
        table().bias_gradient(moved, again, rows, columns, Write::add, stream());
        EXPECT_EQ(again.read(), dbias.read()) << offset;
      }
      const SmallWorkspace pieces{bench(), 16'384};
      DeviceValues again{bench(), before, DType::fp32};
      table().bias_gradient(in, again, rows, columns, Write::add, stream());
      EXPECT_EQ(again.read(), dbias.read()) << "in pieces";
    }
  }
}

TEST_P(BiasKernels, OverwritingAGradientEqualsAddingToZero) {
  for (const DType dtype : kValueDTypes) {
    for (const auto [rows, columns] : {Size{0, 9}, Size{100, 77}, Size{300, 1016}}) {
      DeviceValues in{bench(), random_floats(rows * columns, 5), DType::bf16};
      DeviceValues zero{bench(), filled(columns, 0.0F), dtype}, anything{bench(), columns, dtype};
      table().bias_gradient(in, zero, rows, columns, Write::add, stream());
      table().bias_gradient(in, anything, rows, columns, Write::overwrite, stream());
      EXPECT_EQ(anything.read(), zero.read()) << rows << " x " << columns;
    }
  }
  Floats sum{kNan, kNan};
  const Floats dy{1.0F, 2.0F, 3.0F, 4.0F};
  reference::bias_gradient(dy.data(), sum.data(), 2, 2, Write::overwrite, Stream{});
  EXPECT_EQ(sum, (Floats{4.0F, 6.0F}));
}

class BiasOnCuda : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, BiasOnCuda, cuda_alone(), backend_name);

TEST_P(BiasOnCuda, AWorkspaceThatIsTooSmallIsRefused) {
  DeviceArray<float> dy{bench(), 6400}, dbias{bench(), 64};
  const SmallWorkspace none{bench(), 0};
  EXPECT_THROW(table().bias_gradient(dy.data(), dbias.data(), 100, 64, Write::add, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels::bias_test
