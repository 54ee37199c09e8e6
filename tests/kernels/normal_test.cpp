#include "kernels/normal/normal.hpp"

#include "kernels/support/master_parts.hpp"
#include "kernels/values.hpp"

namespace tessera::kernels::normal_test {
namespace {

class NormalKernels : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Backends, NormalKernels, backends(), backend_name);

TEST_P(NormalKernels, DoNotDependOnTheCut) {
  const NormalKey key{.seed = 1, .id = 2};
  DeviceArray<float> whole{bench(), 1000};
  DeviceArray<float> parts{bench(), 1000};
  table().fill_normal(whole.data(), MasterPart::value, key, 0, 1.0F, 1000, stream());
  const auto cuts = random_cuts(1000, 6, 3);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    table().fill_normal(parts.data() + cuts[i], MasterPart::value, key, cuts[i], 1.0F,
                        cuts[i + 1] - cuts[i], stream());
  }
  EXPECT_TRUE(same_bits(whole.read(), parts.read()));
}

// Initial values of a model, with whole masters and with remainders.
TEST_P(NormalKernels, ThePartsJoinToTheNumbers) {
  const NormalKey key{.seed = 3, .id = 1};
  const std::int64_t elems = 70'001;  // every lower half occurs about once
  DeviceArray<float> whole{bench(), elems};
  DeviceArray<std::uint16_t> parameter{bench(), elems};
  DeviceArray<std::uint16_t> remainder{bench(), elems};
  const auto fill = [&](Values to, MasterPart part) {
    table().fill_normal(to, part, key, 5, 0.02F, elems, stream());
  };
  fill(whole.data(), MasterPart::value);
  fill({parameter.data(), DType::bf16}, MasterPart::parameter);
  fill({remainder.data(), DType::bf16}, MasterPart::remainder);
  const auto upper = parameter.read();
  const auto lower = remainder.read();
  Floats joined;
  for (std::size_t i = 0; i < upper.size(); ++i) {
    joined.push_back(join_master(upper[i], lower[i]));
  }
  EXPECT_TRUE(same_bits(joined, whole.read()));
}

class NormalOnCuda : public BackendTest {
 protected:
  /// Bound of kernels/normal/normal.hpp: two roundings in fp32, or one step in 16 bits, and only
  /// for few elements.
  void expect_the_cpus(std::int64_t first, std::int64_t elems, DType dtype, std::int64_t offset) {
    const NormalKey key{.seed = 77, .id = 5};
    DeviceBench cpu{make_cpu_device()};
    const auto numbers = [&](DeviceBench& bench) {
      DeviceValues values{bench, elems, dtype, offset};
      bench.table().fill_normal(values, MasterPart::value, key, first, 0.02F, elems,
                                bench.stream());
      return values.floats();
    };
    const Floats actual = numbers(bench()), wanted = numbers(cpu);
    const float step = dtype == DType::fp32 ? 0x1p-22F : dtype == DType::fp16 ? 0x1p-10F : 0x1p-7F;
    const float least = dtype == DType::fp16 ? 0x1p-24F : 0.0F;  // a step between subnormals
    std::int64_t differ = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      differ += actual[i] == wanted[i] ? 0 : 1;
      ASSERT_NEAR(actual[i], wanted[i], std::abs(wanted[i]) * step + least) << i;
    }
    EXPECT_LE(differ, 2 + elems / 100'000) << elems << " from " << first;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, NormalOnCuda, cuda_alone(), backend_name);

TEST_P(NormalOnCuda, HasTheCpusNumbers) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t elems : kSizes) { expect_the_cpus(0, elems, dtype, 0); }
    for (const std::int64_t first : {1LL, 2LL, 3LL, 64LL, (1LL << 34) + 5}) {
      expect_the_cpus(first, 333, dtype, 1);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::normal_test
