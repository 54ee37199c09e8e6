#include "tessera/optim/schedule.hpp"

#include <gtest/gtest.h>

namespace tessera::schedule_test {
namespace {

constexpr Schedule kCosine{.shape = ScheduleShape::cosine,
                           .lr = 1.0F,
                           .min_lr = 0.2F,
                           .warmup_steps = 4,
                           .total_steps = 12};

TEST(Schedule, WarmsUpInEqualStepsAndNeverFromZero) {
  EXPECT_FLOAT_EQ(kCosine.at(0), 0.2F);  // 1/5, 2/5 ...
  EXPECT_FLOAT_EQ(kCosine.at(1), 0.4F);
  EXPECT_FLOAT_EQ(kCosine.at(2), 0.6F);
  EXPECT_FLOAT_EQ(kCosine.at(3), 0.8F);
}

// 8 steps of decay from 1 to 0.2: (1 + cos) / 2 scales the difference of 0.8.
TEST(Schedule, FollowsHalfACosineAfterTheWarmUp) {
  EXPECT_EQ(kCosine.at(4), 1.0F);
  EXPECT_FLOAT_EQ(kCosine.at(6), 0.88284271F);  // 0.2 + 0.8 (1 + sqrt(2)/2) / 2
  EXPECT_FLOAT_EQ(kCosine.at(8), 0.6F);         // halfway
  EXPECT_FLOAT_EQ(kCosine.at(10), 0.31715729F);
}

TEST(Schedule, StaysAtTheLowestRateFromTheLastStepOn) {
  EXPECT_GT(kCosine.at(11), 0.2F);
  EXPECT_EQ(kCosine.at(12), 0.2F);
  EXPECT_EQ(kCosine.at(1'000'000'000'000), 0.2F);
}

TEST(Schedule, ConstantKeepsTheHighestRateAfterTheWarmUp) {
  const Schedule constant{.shape = ScheduleShape::constant,
                          .lr = 0.5F,
                          .min_lr = 0.1F,
                          .warmup_steps = 1,
                          .total_steps = 3};
  EXPECT_EQ(constant.at(0), 0.25F);
  EXPECT_EQ(constant.at(1), 0.5F);
  EXPECT_EQ(constant.at(100), 0.5F);
}

TEST(Schedule, FallsWithoutRisingBetweenWarmUpAndEnd) {
  const Schedule schedule{.lr = 3e-4F, .min_lr = 3e-5F, .warmup_steps = 10, .total_steps = 1000};
  for (std::int64_t step = 10; step < 1100; ++step) {
    ASSERT_LE(schedule.at(step + 1), schedule.at(step)) << step;
    ASSERT_GE(schedule.at(step), 3e-5F) << step;
  }
}

TEST(Schedule, NeedsNoStepsBesideTheWarmUp) {
  const Schedule only_warm_up{.lr = 1.0F, .min_lr = 0.5F, .warmup_steps = 3, .total_steps = 3};
  EXPECT_EQ(only_warm_up.at(2), 0.75F);
  EXPECT_EQ(only_warm_up.at(3), 0.5F);
}

TEST(Schedule, WithoutWarmUpStartsAtTheHighestRate) {
  const Schedule schedule{.lr = 3e-4F, .min_lr = 3e-5F, .warmup_steps = 0, .total_steps = 7};
  EXPECT_EQ(schedule.at(0), 3e-4F);
}

}  // namespace
}  // namespace tessera::schedule_test
