// Uses something of each package of the bundle.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/Version.hpp>
#include <Eigen/Core>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

TEST(Bundle, HasEveryPackage) {
  EXPECT_EQ(Eigen::Vector3f::Ones().sum(), 3.0F);
  EXPECT_THAT(fmt::format("{} {}", CLI11_VERSION, XXH64("", 0, 0)), testing::HasSubstr(" "));
  EXPECT_EQ(nlohmann::json::parse("[1, 2]").size(), 2U);
  int value = 1;
  benchmark::DoNotOptimize(value);
  EXPECT_FALSE(benchmark::ReportUnrecognizedArguments(0, nullptr));
}
