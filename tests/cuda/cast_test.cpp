#include "cuda/values.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels {
namespace {

using CudaCastTest = CudaTest;

void expect_cast(CudaBench& bench, const Table& table, const Floats& values, DType to, DType from,
                 std::int64_t to_offset, std::int64_t from_offset) {
  const std::int64_t elems = std::ssize(values);
  DeviceValues source{bench, values, from, from_offset};
  DeviceValues target{bench, elems, to, to_offset};
  table.cast(target.view(), source.view(), bench.stream());
  const Bytes expected = encoded(decoded(encoded(values, from), from), to);
  EXPECT_TRUE(same_values(target.read(), expected, to))
      << elems << " from " << to_string(from) << " at " << from_offset << " to " << to_string(to)
      << " at " << to_offset;
}

TEST_F(CudaCastTest, HasTheCpusBitsBetweenAnyTwo) {
  for (const DType to : kElementTypes) {
    for (const DType from : kElementTypes) {
      for (const std::int64_t elems : kSizes) {
        expect_cast(bench(), table(), random_floats(elems, 1, 100.0F), to, from, 0, 0);
      }
      expect_cast(bench(), table(), random_floats(2000, 2), to, from, 3, 3);
      expect_cast(bench(), table(), random_floats(2000, 2), to, from, 1, 2);
    }
  }
}

TEST_F(CudaCastTest, RoundsTiesSubnormalsAndWhatOverflows) {
  Floats values{0.0F, -0.0F, kInfinity, -kInfinity, kNan, 65504.0F, 65519.9F, 65520.0F, 1e-45F};
  for (int exponent = -30; exponent < 18; ++exponent) {
    for (const float mantissa : {1.0F, 1.00390625F, 1.001953125F, 1.00048828125F, 1.0000001F}) {
      values.push_back(std::ldexp(mantissa, exponent));
      values.push_back(-std::ldexp(mantissa + 0.0078125F, exponent));
    }
  }
  for (const DType to : kElementTypes) {
    expect_cast(bench(), table(), values, to, DType::fp32, 0, 0);
    expect_cast(bench(), table(), values, to, DType::fp32, 1, 0);
  }
}

TEST_F(CudaCastTest, RefusesFp64AndSidesOfTwoSizes) {
  EXPECT_THROW(table().cast({nullptr, 0, DType::fp64}, {nullptr, 0, DType::fp32}, stream()),
               ContractError);
  EXPECT_THROW(table().cast({nullptr, 0, DType::fp32}, {nullptr, 1, DType::fp32}, stream()),
               ContractError);
}

}  // namespace
}  // namespace tessera::kernels
