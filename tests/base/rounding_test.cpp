#include "tessera/base/rounding.hpp"

#include <gtest/gtest.h>

#include "tessera/base/error.hpp"

namespace tessera::rounding_test {
namespace {

TEST(Rounding, NamesRoundTrip) {
  EXPECT_EQ(parse_rounding("nearest"), Rounding::nearest);
  EXPECT_EQ(parse_rounding("stochastic"), Rounding::stochastic);
  EXPECT_EQ(to_string(Rounding::stochastic), "stochastic");
}

TEST(Rounding, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    static_cast<void>(parse_rounding("up"));
    FAIL() << "\"up\" was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "unknown rounding \"up\"; known are nearest, stochastic");
  }
}

}  // namespace
}  // namespace tessera::rounding_test
