#include "kernels/dropout/dropout.hpp"

#include "kernels/dropout/mask_key.hpp"
#include "kernels/values.hpp"

namespace tessera::kernels::dropout_test {
namespace {

constexpr DropoutKey kKey{.seed = 7, .step = 3, .site = 5, .first_sample = 2};

Dropout call(ConstValues x, Values y, std::int64_t samples, std::int64_t sample_elems,
             float p = 0.3F, const DropoutKey& key = kKey) {
  return {.x = x, .y = y, .samples = samples, .sample_elems = sample_elems, .p = p, .key = key};
}

// With p near 1/2 the mask is the top bit of a Philox word, as in the generator's own test.
TEST(DropoutReference, DropsByTheWordsOfTheKey) {
  const Floats x{1, 2, 3, 4, 5, 6};
  Floats y = filled(6, kNan);
  reference::dropout(call(x.data(), y.data(), 1, 6, 0.5F), Stream{});
  for (std::uint32_t i = 0; i < 6; ++i) {
    const std::uint32_t word = philox4x32({i / 4, 0, 2, 0}, mask_key(kKey))[i % 4];
    EXPECT_EQ(y[i], word >> 31U == 0 ? 0.0F : 2.0F * x[i]) << i;
  }
}

class DropoutKernels : public BackendTest {
 protected:
  void expect_dropped(std::int64_t samples, std::int64_t sample_elems, DType dtype,
                      std::int64_t offset, const DropoutKey& key) {
    SCOPED_TRACE(testing::Message() << samples << " x " << sample_elems << " " << to_string(dtype)
                                    << " at " << offset);
    const std::int64_t elems = samples * sample_elems;
    const Floats values = random_floats(elems, 1);
    HostValues host{dtype, values}, expected{dtype, filled(elems, kNan)};
    reference::dropout(call(host.view(), expected.view(), samples, sample_elems, 0.3F, key),
                       Stream{});
    DeviceValues x{bench(), values, dtype, offset}, y{bench(), elems, dtype, offset};
    table().dropout(call(x, y, samples, sample_elems, 0.3F, key), stream());
    EXPECT_EQ(y.read(), expected.bytes());
    table().dropout(call(x, x, samples, sample_elems, 0.3F, key), stream());
    EXPECT_EQ(x.read(), expected.bytes()) << "in place";
  }

  /// Dropout of an array of ones.
  Floats mask(std::int64_t samples, std::int64_t sample_elems, float p,
              const DropoutKey& key = kKey) {
    DeviceArray<float> x{bench(), filled(samples * sample_elems, 1.0F)};
    table().dropout(call(x.data(), x.data(), samples, sample_elems, p, key), stream());
    return x.read();
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, DropoutKernels, backends(), backend_name);

TEST_P(DropoutKernels, HaveTheBitsOfTheReferenceAlsoInPlace) {
  const DropoutKey far{.seed = 5, .step = 11, .site = 2, .first_sample = (1LL << 33) + 3};
  for (const DType dtype : kValueDTypes) {
    for (const DropoutKey& key : {kKey, far}) {
      for (const std::int64_t elems : kSizes) { expect_dropped(1, elems, dtype, 0, key); }
      for (const std::int64_t elems : {0, 1, 7, 63, 64, 65, 255, 257, 10'003}) {
        expect_dropped(3, elems, dtype, 3, key);
      }
      expect_dropped(3, 512, dtype, 0, key);   // only whole tiles
      expect_dropped(5, 1032, dtype, 0, key);  // whole tiles and single elements in each sample
      expect_dropped(3, 1001, dtype, 0, key);  // samples that begin at any alignment
      expect_dropped(2, 512, dtype, 1, key);
      expect_dropped(0, 512, dtype, 0, key);
    }
  }
}

// Samples 2, 3 and 4 as one micro-batch, or as one of 2 and one of 3 and 4.
TEST_P(DropoutKernels, ACutBetweenSamplesChangesNoBit) {
  constexpr std::int64_t elems = 101;
  DeviceArray<float> x{bench(), random_floats(3 * elems, 3)};
  DeviceArray<float> whole{bench(), 3 * elems}, cut{bench(), 3 * elems};
  table().dropout(call(x.data(), whole.data(), 3, elems), stream());
  table().dropout(call(x.data(), cut.data(), 1, elems), stream());
  Dropout rest = call(x.data() + elems, cut.data() + elems, 2, elems);
  rest.key.first_sample = 3;
  table().dropout(rest, stream());
  EXPECT_TRUE(same_bits(cut.read(), whole.read()));
}

// Rows of a sample that are computed elsewhere keep their words, wherever they begin.
TEST_P(DropoutKernels, ACutWithinSamplesChangesNoBit) {
  constexpr std::int64_t elems = 1200;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Floats values = random_floats(2 * elems, 3);
    DeviceValues x{bench(), values, dtype}, whole{bench(), 2 * elems, dtype};
    table().dropout(call(x, whole, 2, elems), stream());
    for (const std::int64_t first : {4, 64, 61, 1199}) {
      Floats expected;
      Floats rest;
      for (const std::int64_t sample : {0, 1}) {
        const auto from = sample * elems + first;
        const auto to = (sample + 1) * elems;
        const Floats left = whole.floats();
        expected.insert(expected.end(), left.begin() + from, left.begin() + to);
        rest.insert(rest.end(), values.begin() + from, values.begin() + to);
      }
      DeviceValues cut{bench(), rest, dtype};
      HostValues by_reference{dtype, rest};
      Dropout args = call(cut, cut, 2, elems - first);
      args.first_elem = first;
      table().dropout(args, stream());
      EXPECT_TRUE(same_bits(cut.floats(), expected)) << first;
      args.x = args.y = by_reference.view();
      reference::dropout(args, Stream{});
      EXPECT_TRUE(same_bits(by_reference.floats(), expected)) << first;
    }
  }
}

// The fraction of n draws has deviation sqrt(p (1 - p) / n); five deviations are allowed.
TEST_P(DropoutKernels, DropWithTheirProbabilityAndKeepTheMean) {
  constexpr std::int64_t elems = 200'000;
  for (const float p : {0.0F, 0.1F, 0.5F, 0.9F}) {
    const Floats y = mask(4, elems / 4, p);
    const double q = 1.0 - static_cast<double>(p);
    const double slack = 5.0 * std::sqrt(q * (1.0 - q) / elems);
    const auto kept = static_cast<double>(elems - std::count(y.begin(), y.end(), 0.0F));
    EXPECT_NEAR(kept / elems, q, slack) << p;
    double sum = 0.0;
    for (const float value : y) { sum += static_cast<double>(value); }
    EXPECT_NEAR(sum / elems, 1.0, slack / q + roundings(4, 1 / q)) << p;
  }
}

// The mask of any other key agrees only as often as by chance.
TEST_P(DropoutKernels, MasksOfDifferentKeysAreIndependent) {
  constexpr std::int64_t elems = 100'000;
  const Floats base = mask(1, elems, 0.5F);
  for (const auto& change : std::initializer_list<void (*)(DropoutKey&)>{
           [](DropoutKey& key) { ++key.seed; }, [](DropoutKey& key) { key.seed += 1ULL << 40U; },
           [](DropoutKey& key) { ++key.step; }, [](DropoutKey& key) { key.step += 1LL << 40U; },
           [](DropoutKey& key) { ++key.site; }, [](DropoutKey& key) { ++key.first_sample; },
           [](DropoutKey& key) { key.first_sample += 1LL << 40U; }}) {
    DropoutKey key = kKey;
    change(key);
    const Floats other = mask(1, elems, 0.5F, key);
    std::int64_t same = 0;
    for (std::size_t i = 0; i < base.size(); ++i) { same += base[i] == other[i] ? 1 : 0; }
    EXPECT_NEAR(static_cast<double>(same) / elems, 0.5, 5.0 * std::sqrt(0.25 / elems));
  }
}

TEST_P(DropoutKernels, DroppedElementsAreZeroWhateverTheyWere) {
  DeviceArray<float> x{bench(), filled(64, kNan)};
  table().dropout(call(x.data(), x.data(), 1, 64), stream());
  const Floats left = x.read();
  EXPECT_GT(std::count(left.begin(), left.end(), 0.0F), 5);
}

}  // namespace
}  // namespace tessera::kernels::dropout_test
