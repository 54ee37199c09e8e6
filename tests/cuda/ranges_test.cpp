// Ranges that a profiler sees: enqueued work by phase and unit.
#include <gmock/gmock.h>

#include "cuda/nvtx_recorder.hpp"
#include "cuda/support.hpp"
#include "tessera/tessera.hpp"

namespace tessera::test::ranges_test {
namespace {

using ::testing::ElementsAre;

class CudaRanges : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string reason = no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaRanges, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

TEST_P(CudaRanges, AreNamedByPhaseAndUnitAndFollowEachOther) {
  WorldOptions options;
  options.device = DeviceKind::cuda;
  run_ranks(
      GetParam(),
      [](World& world) {
        NvtxRecorder recorder;
        {
          ShardedModel model{world, {.strategy = Strategy::zero3}};
          const Unit first = model.add_unit("first", {{"weight", {8}}});
          const Unit second = model.add_unit("second", {{"weight", {8}}});
          model.materialize(init::constant(0.0F));
          model.optimize_with(SGD{});
          { const auto scope = model.forward(first); }
          { const auto scope = model.forward(second); }
          { const auto scope = model.backward(second); }
          { const auto scope = model.backward(first); }
          model.step();
          { const auto evaluation = model.evaluate(); }
        }
        EXPECT_THAT(recorder.calls(), ElementsAre("+forward first", "-", "+forward second", "-",
                                                  "+backward second", "-", "+backward first", "-",
                                                  "+update", "-", "+evaluation", "-", "+update"));
      },
      options);
}

using CudaRange = CudaTest;
TEST_F(CudaRange, EndsWithItsDevice) {
  NvtxRecorder recorder;
  {
    const std::unique_ptr<Device> device = make_cuda_device();
    device->name_range("forward", "h.0");
    device->name_range("forward", std::string(1000, 'x'));
  }
  ASSERT_EQ(recorder.calls().size(), 4U);
  EXPECT_EQ(recorder.calls()[0], "+forward h.0");
  EXPECT_LT(recorder.calls()[2].size(), 1000U);
  EXPECT_EQ(recorder.calls()[3], "-");
}

}  // namespace
}  // namespace tessera::test::ranges_test
