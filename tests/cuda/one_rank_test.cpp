// Collectives of a single rank: its own data is already in place.
#include <vector>

#include "cuda/emulation.hpp"
#include "cuda/support.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::one_rank_test {
namespace {

constexpr std::int64_t kElems = 1000;

class OneRankCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
  /// Checks the device's work for `batch(view)`, and its result on 1, 2, 3 ...
  template <class MakeBatch>
  void submit(const MakeBatch& batch_of, std::uint64_t expected_work) {
    Emulation emulation;
    const auto work = [&] {
      return emulation.calls("cudaLaunchKernelEx") + emulation.calls("cudaMemcpyAsync");
    };
    WorldOptions options;
    options.device = DeviceKind::cuda;
    run_ranks(
        1,
        [&](World& world) {
          std::vector<float> values(2 * kElems);
          for (std::size_t i = 0; i < kElems; ++i) { values[i] = static_cast<float>(i + 1); }
          const std::size_t bytes = values.size() * sizeof(float);
          const Buffer memory = world.allocate(Category::workspace, bytes, "values");
          const Stream compute = world.compute_stream();
          world.device().copy_in(memory.data(), values.data(), bytes, compute);
          compute.wait();
          const View all{memory.data(), 2 * kElems, DType::fp32};
          const std::uint64_t before = work();
          world.reduce_channel().communicator.submit(
              batch_of(all.slice(0, kElems), all.slice(kElems, kElems)), compute);
          EXPECT_EQ(work() - before, expected_work);
          std::vector<float> after(values.size());
          world.device().copy_out(after.data(), memory.data(), bytes, compute);
          compute.wait();
          for (std::size_t i = 0; i < kElems && expected_work > 0; ++i) {
            values[kElems + i] = values[i];
          }
          EXPECT_EQ(after, values);
        },
        options);
  }
};

Batch reduce_scatter(View from, View to) {
  return std::move(Batch{"a sum"}.reduce_scatter(from, to));
}
Batch all_gather(View from, View to) {
  return std::move(Batch{"a shard"}.all_gather(from, to));
}

TEST_F(OneRankCuda, CopiesNothingOntoItself) {
  TESSERA_EMULATION_ONLY();
  submit([](View x, View) { return std::move(Batch{"all"}.all_reduce(x)); }, 0);
  submit([](View x, View) { return reduce_scatter(x, x); }, 0);
  submit([](View x, View) { return all_gather(x, x); }, 0);
  submit([](View x, View) { return std::move(Batch{"root"}.reduce(x, ReduceOp::sum, 0)); }, 0);
}

TEST_F(OneRankCuda, CopiesOnceFromAnotherPlace) {
  TESSERA_EMULATION_ONLY();
  submit([](View x, View apart) { return reduce_scatter(x, apart); }, 1);
  submit([](View x, View apart) { return all_gather(x, apart); }, 1);
}

}  // namespace
}  // namespace tessera::test::one_rank_test
