#include "base/overflow.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/base/half.hpp"

namespace tessera::overflow_test {
namespace {

bool becomes_infinite(DType to, float value) {
  const float rounded = to == DType::fp16 ? float16::from_float(value).to_float()
                                          : bfloat16::from_float(value).to_float();
  return std::isinf(rounded);
}

TEST(Overflow, CountsExactlyTheFiniteValuesThatTheDtypeRoundsToInfinity) {
  for (const DType to : {DType::fp16, DType::bf16}) {
    const float limit = to == DType::fp16 ? 65'520.0F : 0x1.FFp127F;
    for (int step = -40; step <= 40; ++step) {
      const float near = std::bit_cast<float>(std::bit_cast<std::uint32_t>(limit) +
                                              static_cast<std::uint32_t>(step));
      for (const float value : {near, -near}) {
        Overflows found;
        found.add(std::vector<float>{value}, to, 0);
        EXPECT_EQ(found.count == 1, becomes_infinite(to, value)) << value;
      }
    }
  }
}

TEST(Overflow, NamesTheFirstAndLeavesOutWhatIsNotFinite) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  Overflows found;
  found.add(std::vector<float>{1.0F, inf, -inf, std::nanf("")}, DType::fp16, 0);
  EXPECT_EQ(found.count, 0);
  found.add(std::vector<float>{0.0F, -70'000.0F, 80'000.0F}, DType::fp16, 4);
  EXPECT_EQ(found.text(DType::fp16),
            "2 of its values, the first -70000 at element 5, are beyond the range of fp16");
  Overflows none;
  none.add(std::vector<float>{3e38F}, DType::fp32, 0);
  EXPECT_EQ(none.count, 0);
}

}  // namespace
}  // namespace tessera::overflow_test
