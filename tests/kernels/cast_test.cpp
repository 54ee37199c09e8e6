#include "kernels/cast/cast.hpp"

#include "kernels/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::cast_test {
namespace {

TEST(CastReference, RoundsToNearestTiesToEven) {
  DeviceBench cpu{make_cpu_device()};
  const auto narrowed = [&](const Floats& from, DType to) {
    std::vector<std::uint16_t> out(from.size());
    const auto elems = std::ssize(from);
    reference::cast({out.data(), elems, to}, {from.data(), elems, DType::fp32}, cpu.stream());
    return out;
  };
  // bf16 keeps 7 bits of the mantissa: 1 + 2^-8 is a tie, to even; 1 + 3 * 2^-8 too.
  const Floats from{1.0F, 1.00390625F, 1.01171875F, -2.5F, 0.0F, -0.0F, 3.3999e38F, kInfinity};
  EXPECT_EQ(
      narrowed(from, DType::bf16),
      (std::vector<std::uint16_t>{0x3F80, 0x3F80, 0x3F82, 0xC020, 0x0000, 0x8000, 0x7F80, 0x7F80}));
  // fp16 keeps 10: 1 + 2^-11 is a tie; 65520 is the first number that overflows.
  const Floats half{1.0F, 1.00048828125F, 1.00146484375F, 65519.0F, 65520.0F, 5.9604645e-8F};
  EXPECT_EQ(narrowed(half, DType::fp16),
            (std::vector<std::uint16_t>{0x3C00, 0x3C00, 0x3C02, 0x7BFF, 0x7C00, 0x0001}));
}

class CastKernels : public BackendTest {
 protected:
  struct Start {
    std::int64_t to;
    std::int64_t from;
  };
  void expect_cast(const Floats& values, DType to, DType from, const Start& start) {
    const std::int64_t elems = std::ssize(values);
    DeviceValues source{bench(), values, from, start.from};
    DeviceValues target{bench(), elems, to, start.to};
    table().cast(target.view(), source.view(), stream());
    const Bytes stored = encoded(values, from);
    Bytes expected(static_cast<std::size_t>(elems) * size_of(to));
    reference::cast({expected.data(), elems, to}, {stored.data(), elems, from}, host_.stream());
    EXPECT_TRUE(same_values(target.read(), expected, to))
        << elems << " from " << to_string(from) << " at " << start.from << " to " << to_string(to)
        << " at " << start.to;
  }

 private:
  DeviceBench host_{make_cpu_device()};
};
INSTANTIATE_TEST_SUITE_P(Backends, CastKernels, backends(), backend_name);

TEST_P(CastKernels, EveryLowPrecisionNumberComesBackFromFp32) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) { all[i] = static_cast<std::uint16_t>(i); }
  for (const DType low : {DType::bf16, DType::fp16}) {
    DeviceArray<std::uint16_t> from{bench(), all}, back{bench(), 65536};
    DeviceValues wide{bench(), 65536, DType::fp32};
    table().cast(wide.view(), {from.data(), 65536, low}, stream());
    table().cast({back.data(), 65536, low}, wide.view(), stream());
    const Floats floats = wide.floats();
    const std::vector<std::uint16_t> bits = back.read();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(floats[i])) { continue; }
      ASSERT_EQ(bits[i], all[i]) << to_string(low);
    }
  }
}

TEST_P(CastKernels, HaveTheReferencesBitsBetweenAnyTwoDtypes) {
  for (const DType to : kValueDTypes) {
    for (const DType from : kValueDTypes) {
      for (const std::int64_t elems : kSizes) {
        Floats values = random_floats(elems, 3, 100.0F);
        if (elems > 8) {
          values[3] = kNan;
          values[5] = -kInfinity;
          values[7] = 1e-42F;
        }
        expect_cast(values, to, from, {0, 0});
      }
      expect_cast(random_floats(2000, 2), to, from, {3, 3});
      expect_cast(random_floats(2000, 2), to, from, {1, 2});
    }
  }
}

TEST_P(CastKernels, RoundTiesSubnormalsAndWhatOverflows) {
  Floats values{0.0F, -0.0F, kInfinity, -kInfinity, kNan, 65504.0F, 65519.9F, 65520.0F, 1e-45F};
  for (int exponent = -30; exponent < 18; ++exponent) {
    for (const float mantissa : {1.0F, 1.00390625F, 1.001953125F, 1.00048828125F, 1.0000001F}) {
      values.push_back(std::ldexp(mantissa, exponent));
      values.push_back(-std::ldexp(mantissa + 0.0078125F, exponent));
    }
  }
  for (const DType to : kValueDTypes) {
    expect_cast(values, to, DType::fp32, {0, 0});
    expect_cast(values, to, DType::fp32, {1, 0});
  }
}

TEST_P(CastKernels, RefuseFp64AndSidesOfTwoSizes) {
  DeviceArray<float> four{bench(), 4};
  const auto four_to = [&](std::int64_t elems, DType dtype) {
    table().cast({four.data(), 4, DType::fp32}, {four.data(), elems, dtype}, stream());
  };
  EXPECT_THROW(four_to(3, DType::bf16), ContractError);
  EXPECT_THROW(four_to(4, DType::fp64), ContractError);
  EXPECT_THROW(table().cast({nullptr, 0, DType::fp64}, {nullptr, 0, DType::fp32}, stream()),
               ContractError);
  EXPECT_THROW(table().cast({nullptr, 0, DType::fp32}, {nullptr, 1, DType::fp32}, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels::cast_test
