#include "tessera/data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"

namespace tessera::sampler_test {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using Windows = std::vector<std::int64_t>;

// All ranks' windows of one step, in the order of the epoch: micro-batch by micro-batch.
Windows windows_of_step(SamplerOptions options, std::int64_t epoch, std::int64_t step) {
  Windows all;
  for (int micro = 0; micro < options.accumulate; ++micro) {
    for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
      DistributedSampler sampler{options};
      sampler.set_epoch(epoch);
      const Windows mine = sampler.windows(step, micro);
      all.insert(all.end(), mine.begin(), mine.end());
    }
  }
  return all;
}

Windows windows_of_epoch(const SamplerOptions& options, std::int64_t epoch) {
  Windows all;
  const std::int64_t steps = DistributedSampler{options}.steps_per_epoch();
  for (std::int64_t step = 0; step < steps; ++step) {
    const Windows some = windows_of_step(options, epoch, step);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Windows count_from(std::int64_t first, std::int64_t count) {
  Windows windows(static_cast<std::size_t>(count));
  std::iota(windows.begin(), windows.end(), first);
  return windows;
}

TEST(DistributedSampler, WithoutShuffleStepKTakesTheKthGlobalBatch) {
  const SamplerOptions options{
      .windows = 50, .batch = 2, .ranks = 3, .accumulate = 2, .shuffle = Shuffle::off};
  ASSERT_EQ(DistributedSampler{options}.steps_per_epoch(), 4);  // 48 of 50
  for (std::int64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(windows_of_step(options, 0, step), count_from(12 * step, 12));
    EXPECT_EQ(windows_of_step(options, 5, step), count_from(12 * step, 12));
  }
}

// Accumulation is equivalent to a larger batch because a step has the same set of windows.
TEST(DistributedSampler, AStepTakesTheSameWindowsHoweverItIsCut) {
  const SamplerOptions base{.windows = 100, .batch = 24, .shuffle = Shuffle::on};
  const std::vector<SamplerOptions> cuts{{.windows = 100, .batch = 6, .ranks = 4},
                                         {.windows = 100, .batch = 4, .ranks = 2, .accumulate = 3},
                                         {.windows = 100, .batch = 1, .ranks = 8, .accumulate = 3}};
  for (std::int64_t step = 0; step < 4; ++step) {
    for (const SamplerOptions& cut : cuts) {
      EXPECT_EQ(windows_of_step(cut, 2, step), windows_of_step(base, 2, step));
    }
  }
}

// The cases are few enough to try all of them.
TEST(DistributedSampler, AnEpochTakesNoWindowTwiceAndDropsLessThanAStep) {
  for (std::int64_t windows = 1; windows <= 40; ++windows) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (const std::int64_t batch : {1, 2, 3}) {
        const SamplerOptions options{.windows = windows, .batch = batch, .ranks = ranks};
        const std::int64_t global = batch * ranks;
        if (windows < global) {
          EXPECT_THROW(DistributedSampler{options}, ConfigError);
          continue;
        }
        Windows taken = windows_of_epoch(options, 3);
        ASSERT_EQ(std::ssize(taken), windows / global * global);
        std::sort(taken.begin(), taken.end());
        ASSERT_EQ(std::adjacent_find(taken.begin(), taken.end()), taken.end());
        ASSERT_GE(taken.front(), 0);
        ASSERT_LT(taken.back(), windows);
      }
    }
  }
}

TEST(DistributedSampler, TheOrderDependsOnSeedAndEpochAlone) {
  const SamplerOptions options{.windows = 64, .batch = 4};
  const Windows order = windows_of_epoch(options, 0);
  EXPECT_EQ(order, windows_of_epoch(options, 0));
  EXPECT_NE(order, windows_of_epoch(options, 1));
  EXPECT_NE(order, windows_of_epoch({.windows = 64, .batch = 4, .seed = 2}, 0));
  EXPECT_NE(order, count_from(0, 64));
}

TEST(DistributedSampler, WrappingTakesEveryWindowAndFillsUpFromTheBeginning) {
  const SamplerOptions options{.windows = 7, .batch = 2, .ranks = 2, .last = LastBatch::wrap};
  ASSERT_EQ(DistributedSampler{options}.steps_per_epoch(), 2);
  Windows taken = windows_of_epoch(options, 0);
  ASSERT_EQ(taken.size(), 8U);
  EXPECT_EQ(taken.back(), taken.front());
  taken.pop_back();
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(taken, count_from(0, 7));
}

TEST(DistributedSampler, WrappingRepeatsTheDataAsOftenAsNeeded) {
  const SamplerOptions options{
      .windows = 2, .batch = 5, .shuffle = Shuffle::off, .last = LastBatch::wrap};
  EXPECT_EQ(windows_of_epoch(options, 0), (Windows{0, 1, 0, 1, 0}));
}

TEST(DistributedSampler, SaysHowMuchIsMissing) {
  const auto refusal = [](const SamplerOptions& options) {
    return message_of<ConfigError>([&] { DistributedSampler{options}; });
  };
  EXPECT_THAT(refusal({.windows = 11, .batch = 2, .ranks = 3, .accumulate = 2}),
              AllOf(HasSubstr("11 windows"), HasSubstr("need 12")));
  EXPECT_THAT(refusal({.windows = 0, .last = LastBatch::wrap}), HasSubstr("need 1"));
  EXPECT_THAT(refusal({.windows = 5, .batch = 0}), HasSubstr("batch must be at least 1"));
  EXPECT_THAT(refusal({.windows = 5, .ranks = 0}), HasSubstr("ranks must be at least 1"));
  EXPECT_THAT(refusal({.windows = 5, .accumulate = -1}), HasSubstr("accumulate must be"));
  EXPECT_THAT(refusal({.windows = 5, .batch = INT64_MAX, .ranks = 2}), HasSubstr("too large"));
}

TEST(DistributedSampler, RefusesRanksStepsAndMicroBatchesOutOfRange) {
  EXPECT_THROW((DistributedSampler{{.windows = 9, .ranks = 2, .rank = 2}}), ContractError);
  EXPECT_THROW((DistributedSampler{{.windows = 9, .ranks = 2, .rank = -1}}), ContractError);
  const DistributedSampler sampler{{.windows = 9, .batch = 2}};
  EXPECT_NO_THROW((void)sampler.windows(3, 0));
  EXPECT_THROW((void)sampler.windows(4, 0), ContractError);
  EXPECT_THROW((void)sampler.windows(-1, 0), ContractError);
  EXPECT_THROW((void)sampler.windows(0, 1), ContractError);
}

}  // namespace
}  // namespace tessera::sampler_test
