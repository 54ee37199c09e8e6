#include "kernels/dropout/dropout.hpp"

#include "kernels/dropout/mask_key.hpp"
#include "kernels/support.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels {
namespace {

using DropoutTest = KernelTest;

constexpr DropoutKey kKey{.seed = 7, .step = 3, .site = 5, .first_sample = 2};

Dropout call(ConstValues x, Values y, std::int64_t samples, std::int64_t sample_elems) {
  return {.x = x, .y = y, .samples = samples, .sample_elems = sample_elems, .p = 0.3F, .key = kKey};
}

// With p near 1/2 the mask is the top bit of a word of Philox: as the generator's own test has
// them.
TEST_F(DropoutTest, ReferenceDropsByTheWordsOfTheKey) {
  const Floats x{1, 2, 3, 4, 5, 6};
  Floats y = filled(6, kNan);
  Dropout args = call(x.data(), y.data(), 1, 6);
  args.p = 0.5F;
  reference::dropout(args, stream());
  for (std::uint32_t i = 0; i < 6; ++i) {
    const std::uint32_t word = philox4x32({i / 4, 0, 2, 0}, mask_key(kKey))[i % 4];
    EXPECT_EQ(y[i], word >> 31U == 0 ? 0.0F : 2.0F * x[i]) << i;
  }
}

TEST_F(DropoutTest, HasTheBitsOfTheReferenceAlsoInPlace) {
  for (const std::int64_t elems : {0, 1, 7, 63, 64, 65, 255, 257, 10'003}) {
    for (const std::int64_t samples : {1, 3}) {
      SCOPED_TRACE(elems);
      const Floats x = random_floats(samples * elems, 1);
      Floats expected = filled(samples * elems, kNan);
      reference::dropout(call(x.data(), expected.data(), samples, elems), stream());
      Placed apart{filled(samples * elems, kNan), 3};
      cpu_.dropout(call(x.data(), apart.data(), samples, elems), stream());
      EXPECT_TRUE(same_bits(apart.values(), expected));
      EXPECT_TRUE(apart.guarded());
      Placed inside{x, 1};
      cpu_.dropout(call(inside.data(), inside.data(), samples, elems), stream());
      EXPECT_TRUE(same_bits(inside.values(), expected));
    }
  }
}

TEST_F(DropoutTest, RoundsValuesOfSixteenBitsOnce) {
  const Floats x = random_floats(257, 2);
  const auto check = [&]<class Half>(Half) {
    std::vector<Half> low(x.size());
    std::vector<Half> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) { low[i] = Half::from_float(x[i]); }
    std::vector<Half> expected(x.size());
    reference::dropout(call(low.data(), expected.data(), 1, 257), stream());
    cpu_.dropout(call(low.data(), y.data(), 1, 257), stream());
    for (std::size_t i = 0; i < x.size(); ++i) { ASSERT_EQ(y[i].bits, expected[i].bits) << i; }
  };
  check(bfloat16{});
  check(float16{});
}

// A micro-batch of samples 2, 3, 4 is one of 2 and one of 3, 4.
TEST_F(DropoutTest, ACutBetweenSamplesChangesNoBit) {
  constexpr std::int64_t elems = 101;
  const Floats x = random_floats(3 * elems, 3);
  Floats whole = x;
  cpu_.dropout(call(x.data(), whole.data(), 3, elems), stream());
  Floats cut = filled(3 * elems, kNan);
  Dropout first = call(x.data(), cut.data(), 1, elems);
  cpu_.dropout(first, stream());
  Dropout rest = call(x.data() + elems, cut.data() + elems, 2, elems);
  rest.key.first_sample = 3;
  cpu_.dropout(rest, stream());
  EXPECT_TRUE(same_bits(cut, whole));
}

double kept_fraction(const Dropout& args, Stream stream) {
  cpu_table().dropout(args, stream);
  const auto* y = args.y.as<float>();
  const std::int64_t elems = args.samples * args.sample_elems;
  const std::int64_t kept = elems - std::count(y, y + elems, 0.0F);
  return static_cast<double>(kept) / static_cast<double>(elems);
}

// A count of n draws has deviation sqrt(p (1 - p) / n): five of those.
TEST_F(DropoutTest, DropsWithItsProbabilityAndKeepsTheMean) {
  constexpr std::int64_t elems = 200'000;
  const Floats ones = filled(elems, 1.0F);
  Floats y = ones;
  for (const float p : {0.0F, 0.1F, 0.5F, 0.9F}) {
    Dropout args = call(ones.data(), y.data(), 4, elems / 4);
    args.p = p;
    const double q = 1.0 - static_cast<double>(p);
    const double slack = 5.0 * std::sqrt(q * (1.0 - q) / elems);
    EXPECT_NEAR(kept_fraction(args, stream()), q, slack) << p;
    double sum = 0.0;
    for (const float value : y) { sum += static_cast<double>(value); }
    EXPECT_NEAR(sum / elems, 1.0, slack / q + 1e-6) << p;
  }
}

// Any other key gives a mask that agrees as often as chance has it.
TEST_F(DropoutTest, MasksOfDifferentKeysHaveNothingInCommon) {
  constexpr std::int64_t elems = 100'000;
  const Floats ones = filled(elems, 1.0F);
  const auto mask = [&](const DropoutKey& key) {
    Floats y = ones;
    Dropout args = call(ones.data(), y.data(), 1, elems);
    args.p = 0.5F;
    args.key = key;
    cpu_.dropout(args, stream());
    return y;
  };
  const Floats base = mask(kKey);
  for (const auto& change : std::initializer_list<void (*)(DropoutKey&)>{
           [](DropoutKey& key) { ++key.seed; }, [](DropoutKey& key) { key.seed += 1ULL << 40U; },
           [](DropoutKey& key) { ++key.step; }, [](DropoutKey& key) { key.step += 1LL << 40U; },
           [](DropoutKey& key) { ++key.site; }, [](DropoutKey& key) { ++key.first_sample; },
           [](DropoutKey& key) { key.first_sample += 1LL << 40U; }}) {
    DropoutKey key = kKey;
    change(key);
    const Floats other = mask(key);
    std::int64_t same = 0;
    for (std::size_t i = 0; i < base.size(); ++i) { same += base[i] == other[i] ? 1 : 0; }
    EXPECT_NEAR(static_cast<double>(same) / elems, 0.5, 5.0 * std::sqrt(0.25 / elems));
  }
}

TEST_F(DropoutTest, WhatIsDroppedIsZeroWhateverItWas) {
  Floats x = filled(64, kNan);
  cpu_.dropout(call(x.data(), x.data(), 1, 64), stream());
  EXPECT_GT(std::count(x.begin(), x.end(), 0.0F), 5);
}

}  // namespace
}  // namespace tessera::kernels
