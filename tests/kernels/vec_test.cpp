#include "kernels/support/vec.hpp"

#include <array>

#include "kernels/support.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::vec_test {
namespace {

// Vector conversions equal those of the types, for every 16-bit pattern and around every tie.
TEST(Vec, ConversionsOfSixteenBitsHaveTheBitsOfTheTypes) {
  const auto check = [&]<class Half>(Half) {
    std::vector<Half> all;
    for (int i = 0; i < 65'536; ++i) { all.push_back(Half{static_cast<std::uint16_t>(i)}); }
    for (std::size_t i = 0; i < all.size(); i += kLanes) {
      const Vec v = load(&all[i]);
      for (std::int64_t l = 0; l < kLanes; ++l) {
        const float expected = all[i + static_cast<std::size_t>(l)].to_float();
        const float actual = v[l];
        const bool same =
            std::bit_cast<std::uint32_t>(actual) == std::bit_cast<std::uint32_t>(expected);
        ASSERT_TRUE(same || (std::isnan(actual) && std::isnan(expected))) << i;
      }
    }
    std::mt19937 generator{7};
    for (int i = 0; i < 200'000; ++i) {
      Vec v;
      std::array<Half, kLanes> written;
      for (std::int64_t l = 0; l < kLanes; ++l) {
        auto bits = static_cast<std::uint32_t>(generator());
        if (i % 2 == 0) { bits = (bits & 0xFFFF0000U) | 0x8000U; }  // a tie of bf16
        if (i % 3 == 0) { bits = (bits & 0xFFFFE000U) | 0x1000U; }  // a tie of fp16
        v[l] = std::bit_cast<float>(bits);
      }
      store(written.data(), v);
      for (std::int64_t l = 0; l < kLanes; ++l) {
        const std::uint16_t expected = Half::from_float(v[l]).bits;
        ASSERT_EQ(written[static_cast<std::size_t>(l)].bits, expected)
            << std::bit_cast<std::uint32_t>(static_cast<float>(v[l]));
      }
    }
  };
  check(bfloat16{});
  check(float16{});
}

}  // namespace
}  // namespace tessera::kernels::vec_test
