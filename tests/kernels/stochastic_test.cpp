#include "kernels/update/stochastic.hpp"

#include "kernels/support.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::stochastic_test {
namespace {

constexpr DType kLow[] = {DType::bf16, DType::fp16};
constexpr StochasticKey kKey{.seed = 7, .parameter_id = 3, .updates = 11};

using Bits = std::vector<std::uint16_t>;

Bits rounded(NarrowStochastic* narrow, DType to, const Floats& from,
             const StochasticKey& key = kKey, std::int64_t first = 0) {
  Bits bits(from.size());
  narrow({bits.data(), to}, from.data(), std::ssize(from), key, first);
  return bits;
}

float value_of(DType dtype, std::uint16_t bits) {
  return dtype == DType::bf16 ? bfloat16{bits}.to_float() : float16{bits}.to_float();
}

/// Values of every magnitude that fp16 and bf16 distinguish, their largest values, and exact ones.
Floats awkward_floats() {
  Floats values = random_floats(4000, 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i % 80) - 60);
  }
  for (const float value :
       {0.0F, 1.0F, 65504.0F, 65505.0F, 65520.0F, 65535.99F, 65536.0F, 1e30F, 3.39e38F, 3.4028e38F,
        kInfinity, 6.1035156e-5F, 6.1035150e-5F, 5.9604645e-8F, 3e-8F, 1e-12F, 1e-45F, 1e-39F}) {
    values.push_back(value);
    values.push_back(-value);
  }
  values.push_back(kNan);
  return values;
}

TEST(StochasticWord, IsPhiloxOfTheElementsPlace) {
  const StochasticKey key{
      .seed = 0x1122334455667788U, .parameter_id = 9, .updates = 2, .array = RoundedArray::second};
  const std::int64_t element = (std::int64_t{5} << 34) + 13;  // group 5 * 2^32 + 3, word 1
  EXPECT_EQ(key.word(element),
            philox4x32({3U, 5U | 3U << 24U, 9U, 2U}, {0x55667788U, 0x11223344U})[1]);
}

TEST(NarrowStochastic, TheProcessorsLoopMatchesTheReferenceToTheBit) {
  const Floats values = awkward_floats();
  for (const DType to : kLow) {
    for (const std::int64_t first : {0L, 1L, 2L, 3L, 61L, 1L << 40U}) {
      const Bits expected = rounded(reference::narrow_stochastic, to, values, kKey, first);
      const Bits actual = rounded(cpu::narrow_stochastic, to, values, kKey, first);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(actual[i], expected[i])
            << to_string(to) << " of " << values[i] << " from element " << first;
      }
    }
  }
}

TEST(NarrowStochastic, DependsOnTheElementNotOnTheCut) {
  const Floats values = random_floats(1000, 5);
  for (const DType to : kLow) {
    const Bits whole = rounded(cpu::narrow_stochastic, to, values, kKey, 17);
    for (unsigned seed = 0; seed < 10; ++seed) {
      Bits pieces(values.size());
      const auto cuts = random_cuts(1000, 9, seed);
      for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
        cpu::narrow_stochastic(Values{pieces.data(), to}.at(cuts[c]), values.data() + cuts[c],
                               cuts[c + 1] - cuts[c], kKey, 17 + cuts[c]);
      }
      EXPECT_EQ(pieces, whole);
    }
  }
}

TEST(NarrowStochastic, GivesOneOfTheTwoNeighbours) {
  const Floats values = awkward_floats();
  for (const DType to : kLow) {
    for (std::uint32_t update = 1; update <= 40; ++update) {
      StochasticKey key = kKey;
      key.updates = update;
      const Bits bits = rounded(cpu::narrow_stochastic, to, values, key);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float value = values[i];
        const float got = value_of(to, bits[i]);
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(got));
          continue;
        }
        ASSERT_EQ(std::signbit(got), std::signbit(value));
        if (got == value) { continue; }
        // No other value of this dtype lies in between: one step from `got` towards `value` passes
        // it.
        const bool beyond = std::abs(got) > std::abs(value);
        const float next = value_of(to, static_cast<std::uint16_t>(bits[i] + (beyond ? -1 : 1)));
        ASSERT_TRUE(beyond ? std::abs(next) < std::abs(value) : std::abs(next) > std::abs(value))
            << to_string(to) << " of " << value << " is " << got;
      }
    }
  }
}

// The mean of 20,000 roundings of a value is within five standard deviations: each at most half a
// gap over the square root of the count.
TEST(NarrowStochastic, IsTheValueOnAverage) {
  constexpr std::int64_t count = 20'000;
  for (const DType to : kLow) {
    for (const float value : {1.001F, -1.001F, 0.33333F, 3.14159F, 1e-6F, 1.7e-7F, 100.03F}) {
      const Bits bits = rounded(cpu::narrow_stochastic, to, filled(count, value));
      double sum = 0.0;
      float low = kInfinity;
      float high = -kInfinity;
      for (const std::uint16_t b : bits) {
        const float got = value_of(to, b);
        sum += static_cast<double>(got);
        low = std::min(low, got);
        high = std::max(high, got);
      }
      const double gap = static_cast<double>(high) - static_cast<double>(low);
      EXPECT_GT(gap, 0.0) << "both neighbours come up: " << value;
      EXPECT_NEAR(sum / count, static_cast<double>(value), 5 * 0.5 * gap / std::sqrt(count))
          << to_string(to);
    }
  }
}

TEST(NarrowStochastic, EveryPartOfTheKeyChangesTheBits) {
  const Floats values = filled(256, 1.001F);
  const Bits base = rounded(cpu::narrow_stochastic, DType::bf16, values);
  for (const int part : {0, 1, 2, 3}) {
    StochasticKey key = kKey;
    if (part == 0) { key.seed ^= std::uint64_t{1} << 40U; }
    if (part == 1) { ++key.parameter_id; }
    if (part == 2) { ++key.updates; }
    if (part == 3) { key.array = RoundedArray::second; }
    EXPECT_NE(rounded(cpu::narrow_stochastic, DType::bf16, values, key), base) << part;
  }
}

TEST(NarrowStochastic, ExactValuesStay) {
  for (const DType to : kLow) {
    const Floats exact{0.0F, -0.0F, 1.0F, -1.5F, 0.0078125F, 65024.0F, kInfinity, -kInfinity};
    const Bits bits = rounded(cpu::narrow_stochastic, to, exact);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value_of(to, bits[i])),
                std::bit_cast<std::uint32_t>(exact[i]));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::stochastic_test
