#include "tessera/base/moment_format.hpp"

#include <gtest/gtest.h>

#include "tessera/base/error.hpp"

namespace tessera::moment_format_test {
namespace {

TEST(MomentFormat, NamesRoundTrip) {
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8}) {
    EXPECT_EQ(parse_moment_format(to_string(format)), format);
  }
  EXPECT_EQ(to_string(MomentFormat::int8), "int8");
}

TEST(MomentFormat, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    static_cast<void>(parse_moment_format("fp16"));
    FAIL() << "\"fp16\" was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "'fp16' is not a format of moments; choose fp32, bf16 or int8");
  }
}

}  // namespace
}  // namespace tessera::moment_format_test
