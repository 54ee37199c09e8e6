#include "kernels/bias/bias.hpp"

#include "cuda/device_values.hpp"

namespace tessera::test {
namespace {

using BiasCuda = CudaTest;
namespace reference = kernels::reference;

struct Size {
  std::int64_t rows;
  std::int64_t columns;
};
// Around the widths of packs, warps, chunks and blocks.
constexpr Size kMatrices[] = {{0, 8},    {1, 1},    {7, 3},     {33, 31},   {31, 33},
                              {65, 257}, {64, 768}, {1000, 64}, {1025, 40}, {9'000, 8}};

TEST_F(BiasCuda, AddHasTheBitsOfTheReference) {
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

TEST_F(BiasCuda, GradientIsWithinItsBound) {
  for (const DType dtype : kValueDTypes) {
    for (const DType other : kValueDTypes) {
      for (const auto [rows, columns] : kMatrices) {
        SCOPED_TRACE(testing::Message() << rows << " x " << columns);
        Floats dy = rounded(dtype, random_floats(rows * columns, 1));
        Floats before = rounded(other, random_floats(columns, 2)), expected = before;
        reference::bias_gradient(dy.data(), expected.data(), rows, columns, Stream{});
        Floats sizes = before, magnitudes = dy;
        for (float& size : sizes) { size = std::abs(size); }
        for (float& magnitude : magnitudes) { magnitude = std::abs(magnitude); }
        reference::bias_gradient(magnitudes.data(), sizes.data(), rows, columns, Stream{});

        DeviceValues in{bench(), dy, dtype}, dbias{bench(), before, other};
        table().bias_gradient(in, dbias, rows, columns, stream());
        const auto steps = static_cast<double>(41 + rows / 1024);
        expect_within(dbias.floats(), expected, other, [&](std::size_t c) {
          return steps * kRoundoff * static_cast<double>(sizes[c]);
        });
      }
    }
  }
}

TEST_F(BiasCuda, TheOrderOfTheGradientsSumDependsOnTheSizesAlone) {
  for (const DType dtype : kValueDTypes) {
    constexpr std::int64_t rows = 300, columns = 1016;
    const Floats dy = random_floats(rows * columns, 1), before = random_floats(columns, 2);
    DeviceValues in{bench(), dy, dtype}, dbias{bench(), before, DType::fp32};
    table().bias_gradient(in, dbias, rows, columns, stream());
    for (const std::int64_t offset : {0, 1, 5}) {
      DeviceValues moved{bench(), dy, dtype, offset}, again{bench(), before, DType::fp32, offset};
      table().bias_gradient(moved, again, rows, columns, stream());
      EXPECT_EQ(again.read(), dbias.read()) << offset;
    }
    const SmallWorkspace pieces{bench(), 16'384};
    DeviceValues again{bench(), before, DType::fp32};
    table().bias_gradient(in, again, rows, columns, stream());
    EXPECT_EQ(again.read(), dbias.read()) << "in pieces";
  }
}

TEST_F(BiasCuda, AWorkspaceThatIsTooSmallIsRefused) {
  DeviceArray<float> dy{bench(), 6400}, dbias{bench(), 64};
  const SmallWorkspace none{bench(), 0};
  EXPECT_THROW(table().bias_gradient(dy.data(), dbias.data(), 100, 64, stream()), ContractError);
}

}  // namespace
}  // namespace tessera::test
