#include "kernels/cast/cast.hpp"

#include "support.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels {
namespace {

using Cast = KernelTest;

constexpr DType kLow[] = {DType::bf16, DType::fp16};

View view_of(void* data, std::int64_t elems, DType dtype) {
  return {data, elems, dtype};
}

std::vector<std::uint16_t> narrowed(CastKernel* cast, const Floats& from, DType to, Stream stream) {
  std::vector<std::uint16_t> out(from.size());
  const auto elems = std::ssize(from);
  cast(view_of(out.data(), elems, to), {from.data(), elems, DType::fp32}, stream);
  return out;
}

TEST_F(Cast, ReferenceRoundsToNearestTiesToEven) {
  // bf16 keeps 7 bits of the mantissa: 1 + 2^-8 is a tie, to even; 1 + 3 * 2^-8 too.
  const Floats from{1.0F, 1.00390625F, 1.01171875F, -2.5F, 0.0F, -0.0F, 3.3999e38F, kInfinity};
  EXPECT_EQ(
      narrowed(reference::cast, from, DType::bf16, stream()),
      (std::vector<std::uint16_t>{0x3F80, 0x3F80, 0x3F82, 0xC020, 0x0000, 0x8000, 0x7F80, 0x7F80}));
  // fp16 keeps 10: 1 + 2^-11 is a tie; 65520 is the first number that overflows.
  const Floats half{1.0F, 1.00048828125F, 1.00146484375F, 65519.0F, 65520.0F, 5.9604645e-8F};
  EXPECT_EQ(narrowed(reference::cast, half, DType::fp16, stream()),
            (std::vector<std::uint16_t>{0x3C00, 0x3C00, 0x3C02, 0x7BFF, 0x7C00, 0x0001}));
}

TEST_F(Cast, EveryLowPrecisionNumberComesBackFromFp32) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) { all[i] = static_cast<std::uint16_t>(i); }
  for (const DType low : kLow) {
    Floats wide(all.size());
    cpu_.cast(view_of(wide.data(), 65536, DType::fp32), {all.data(), 65536, low}, stream());
    const std::vector<std::uint16_t> back = narrowed(cpu_.cast, wide, low, stream());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(wide[i])) { continue; }
      ASSERT_EQ(back[i], all[i]) << to_string(low);
    }
  }
}

TEST_F(Cast, MatchesTheReferenceAtEverySize) {
  for (const std::int64_t elems : kSizes) {
    Floats from = random_floats(elems, 3, 100.0F);
    if (elems > 8) {
      from[3] = kNan;
      from[5] = -kInfinity;
      from[7] = 1e-42F;
    }
    for (const DType low : kLow) {
      const auto expected = narrowed(reference::cast, from, low, stream());
      EXPECT_EQ(narrowed(cpu_.cast, from, low, stream()), expected) << elems;
      for (const DType to : {DType::fp32, DType::bf16, DType::fp16}) {
        std::vector<std::byte> wanted(static_cast<std::size_t>(elems) * size_of(to));
        std::vector<std::byte> found(wanted.size());
        reference::cast(view_of(wanted.data(), elems, to), {expected.data(), elems, low}, stream());
        cpu_.cast(view_of(found.data(), elems, to), {expected.data(), elems, low}, stream());
        EXPECT_EQ(found, wanted) << elems << " " << to_string(low) << " to " << to_string(to);
      }
    }
  }
}

TEST_F(Cast, RefusesOtherSizesAndFp64) {
  Floats four(4);
  const auto four_to = [&](std::int64_t elems, DType dtype) {
    cpu_.cast(view_of(four.data(), 4, DType::fp32), {four.data(), elems, dtype}, stream());
  };
  EXPECT_THROW(four_to(3, DType::bf16), ContractError);
  EXPECT_THROW(four_to(4, DType::fp64), ContractError);
}

}  // namespace
}  // namespace tessera::kernels
