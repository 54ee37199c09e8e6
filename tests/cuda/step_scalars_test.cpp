#include "cuda/values.hpp"

namespace tessera::kernels {
namespace {

class CudaStepScalarsTest : public CudaTest {
 protected:
  void expect_step(const StepScalars& before, const std::vector<double>& sums,
                   const FinishStep& options) {
    DeviceArray<StepScalars> scalars{bench(), std::vector<StepScalars>{before}};
    DeviceArray<double> device_sums{bench(), sums};
    table().finish_step(scalars.data(), device_sums.data(), options, stream());
    StepScalars expected = before;
    reference::finish_step(&expected, sums.data(), options, Stream{});
    const StepScalars actual = scalars.read().front();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(actual.grad_norm),
              std::bit_cast<std::uint64_t>(expected.grad_norm));
    EXPECT_EQ(actual.loss, expected.loss);
    EXPECT_EQ(actual.clip, expected.clip);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(actual.gradient_factor),
              std::bit_cast<std::uint32_t>(expected.gradient_factor));
    EXPECT_EQ(actual.apply, expected.apply);
    EXPECT_EQ(actual.updates, expected.updates);
    EXPECT_EQ(actual.loss_scale, expected.loss_scale);
    EXPECT_EQ(actual.used_loss_scale, expected.used_loss_scale);
    EXPECT_EQ(actual.good_steps, expected.good_steps);
    EXPECT_EQ(actual.skipped_in_a_row, expected.skipped_in_a_row);
    EXPECT_EQ(actual.skipped, expected.skipped);
  }
};

FinishStep scaled(int ranks) {
  FinishStep options;
  options.average = 1.0F / 3.0F;
  options.clip_norm = 1.0F;
  options.ranks = ranks;
  options.scale_growth = 2.0F;
  options.scale_backoff = 0.5F;
  options.growth_interval = 2;
  options.least_scale = 1.0F;
  options.most_scale = 65536.0F;
  return options;
}

TEST_F(CudaStepScalarsTest, HasTheReferencesBits) {
  StepScalars scalars;
  expect_step(scalars, {2.0, 3.5}, FinishStep{});
  scalars.loss_scale = 1024.0F;
  scalars.updates = 41;
  for (std::int64_t good = 0; good < 2; ++good) {
    scalars.good_steps = good;
    expect_step(scalars, {2.0, 0.1, 1e-3, 7.25}, scaled(3));
    expect_step(scalars, {1e9, 1e12, 1e-3, 7.25}, scaled(3));
  }
}

TEST_F(CudaStepScalarsTest, SkipsWhatIsNotFinite) {
  StepScalars scalars;
  scalars.loss_scale = 1.5F;
  scalars.skipped_in_a_row = 2;
  expect_step(scalars, {2.0, HUGE_VAL, 1.0}, scaled(2));
}

}  // namespace
}  // namespace tessera::kernels
