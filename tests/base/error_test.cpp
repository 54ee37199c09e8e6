#include "tessera/base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "tessera/base/math.hpp"

namespace tessera::error_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(Expects, IsSilentWhenTheConditionHolds) {
  EXPECT_NO_THROW(expects(true, "fine"));
}

TEST(Expects, NamesTheRuleAndTheCallersPlace) {
  const int line = __LINE__ + 1;
  const auto broken = [] { expects(false, "count must be positive"); };
  EXPECT_THAT(broken, ThrowsMessage<ContractError>(
                          "count must be positive (error_test.cpp:" + std::to_string(line) + ")"));
}

TEST(Narrow, KeepsTheValueOrThrowsWithThePlace) {
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{-7}), -7);
  EXPECT_EQ(narrow<std::uint8_t>(255), 255);
  EXPECT_THAT([] { (void)narrow<std::uint8_t>(256); },
              ThrowsMessage<ContractError>(
                  AllOf(HasSubstr("number out of range"), HasSubstr("error_test.cpp:"))));
  EXPECT_THROW((void)narrow<std::size_t>(-1), ContractError);
  EXPECT_THROW((void)narrow<std::int32_t>(std::int64_t{1} << 31), ContractError);
}

TEST(Math, RoundsUpToMultiples) {
  for (int unit = 1; unit <= 9; ++unit) {
    for (int value = 0; value <= 40; ++value) {
      const int up = round_up(value, unit);
      EXPECT_EQ(up % unit, 0);
      EXPECT_TRUE(up >= value && up - value < unit) << value << ' ' << unit;
      EXPECT_EQ(ceil_div(value, unit) * unit, up);
    }
  }
}

template <class Kind>
bool caught_as_error() {
  try {
    throw Kind("text");
  } catch (const Error& error) { return std::string{error.what()} == "text"; }
}

TEST(Errors, AllAreCaughtAsError) {
  EXPECT_TRUE(caught_as_error<ContractError>());
  EXPECT_TRUE(caught_as_error<ConfigError>());
  EXPECT_TRUE(caught_as_error<OutOfMemory>());
  EXPECT_TRUE(caught_as_error<DeviceError>());
  EXPECT_TRUE(caught_as_error<CommError>());
  EXPECT_TRUE(caught_as_error<FormatError>());
  EXPECT_TRUE(caught_as_error<NumericError>());
}

TEST(AssertDeathTest, SaysWhatDoesNotHoldAndWhere) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(TESSERA_ASSERT(1 + 1 == 3),
               "bug in the library: 1 \\+ 1 == 3 does not hold .*error_test.cpp:");
}

TEST(Assert, IsSilentWhenTheConditionHolds) {
  TESSERA_ASSERT(1 + 1 == 2);
}

}  // namespace
}  // namespace tessera::error_test
