// Timelines worked out by hand.
#include "tessera/pipeline/timeline.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/error.hpp"

namespace tessera::pipeline {
namespace {

TEST(PipelineTimeline, IsDrawnWithAColumnAUnit) {
  EXPECT_EQ(draw(play(one_forward_one_backward(2, 3))),
            "01..aa2bb.cc\n"
            ".0aa1bb2cc..\n");
  EXPECT_EQ(draw(play(zero_bubble(2, 3))),
            "01.aA2bBcC\n"
            ".0a1bA2cBC\n");
}

TEST(PipelineTimeline, IsNotDrawnIfItIsTooLong) {
  const auto drawn = [](double forward) {
    return draw(play(gpipe(1, 1), {.stages = {{.forward = forward}}}));
  };
  EXPECT_EQ(drawn(999'998).size(), 1'000'001U);
  EXPECT_THROW((void)drawn(1e6), ConfigError);
  EXPECT_THROW((void)drawn(1e300), ConfigError);
}

// Stage 1 takes 3 units forward and 5 backward; a transfer takes 1 unit.
TEST(PipelineTimeline, CountsCostsOfStagesAndTransfers) {
  const Timeline timeline = play(gpipe(2, 2), {.stages = {{1, 1, 1}, {3, 2, 3}}, .transfer = 1});
  const std::vector<std::pair<double, double>> stage_0 = {{0, 1}, {1, 2}, {14, 16}, {19, 21}};
  const std::vector<std::pair<double, double>> stage_1 = {{2, 5}, {5, 8}, {8, 13}, {13, 18}};
  for (std::size_t i = 0; i < stage_0.size(); ++i) {
    EXPECT_EQ(timeline.ranks[0][i].begin, stage_0[i].first) << i;
    EXPECT_EQ(timeline.ranks[0][i].end, stage_0[i].second) << i;
    EXPECT_EQ(timeline.ranks[1][i].begin, stage_1[i].first) << i;
    EXPECT_EQ(timeline.ranks[1][i].end, stage_1[i].second) << i;
  }
  EXPECT_EQ(timeline.length, 21);
  EXPECT_DOUBLE_EQ(timeline.idle(0), 1 - 6.0 / 21);
  EXPECT_DOUBLE_EQ(timeline.bubble(), 1 - (6.0 + 16.0) / 42);
}

// Chunks of the same rank send nothing to each other.
TEST(PipelineTimeline, TransfersNothingWithinARank) {
  EXPECT_EQ(play(interleaved(1, 3, 2), {.stages = {}, .transfer = 7}).length, 18);
}

TEST(PipelineTimeline, RefusesCostsThatMakeNoSense) {
  const Schedule schedule = gpipe(3, 2);
  EXPECT_THROW(static_cast<void>(play(schedule, {.stages = {{}, {}}})), ConfigError);
  EXPECT_THROW(static_cast<void>(play(schedule, {.stages = {{.forward = -1}}})), ConfigError);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(static_cast<void>(play(schedule, {.stages = {}, .transfer = nan})), ConfigError);
}

}  // namespace
}  // namespace tessera::pipeline
