#include "tessera/base/bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tessera/base/error.hpp"

namespace tessera::bytes_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(FormatBytes, ShowsThreeDigitsAndABinaryUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(640), "640 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(10 * 1024 + 256), "10.2 KiB");
  EXPECT_EQ(format_bytes(640 * 1024), "640 KiB");
  EXPECT_EQ(format_bytes(std::size_t{24} << 30), "24.0 GiB");
  EXPECT_EQ(format_bytes(std::size_t{1} << 40), "1.00 TiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::size_t>::max()), "16.0 EiB");
}

// Rounding up to 10.0, 100 or 1024 changes the number of digits or the unit.
TEST(FormatBytes, RoundsIntoTheNextRange) {
  EXPECT_EQ(format_bytes((10 << 10) - 1), "10.0 KiB");
  EXPECT_EQ(format_bytes((100 << 10) - 1), "100 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes((1 << 30) - 1), "1.00 GiB");
}

TEST(ParseBytes, ReadsPlainNumbersAndUnits) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("640B"), 640U);
  EXPECT_EQ(parse_bytes("80GiB"), std::size_t{80} << 30);
  EXPECT_EQ(parse_bytes("1.5 MiB"), 3U << 19);
  EXPECT_EQ(parse_bytes("10MB"), 10'000'000U);
  EXPECT_EQ(parse_bytes("0.5 KB"), 500U);
  EXPECT_EQ(parse_bytes("2 tib"), std::size_t{2} << 40);
  EXPECT_EQ(parse_bytes("  7 KiB "), 7168U);
  EXPECT_EQ(parse_bytes("18446744073709551615"), std::numeric_limits<std::size_t>::max());
}

TEST(ParseBytes, ReadsBackWhatFormatShowsExactly) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{640}, std::size_t{1536},
                                  std::size_t{24} << 30, std::size_t{1} << 60}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes)), bytes);
  }
}

TEST(ParseBytes, RefusesWhatIsNotASizeAndShowsAnExample) {
  for (const char* text : {"", " ", "GiB", "-1", "+1", "1e3", "1..5 MB", "1.2.3", ".5 MB", "5. MB",
                           "1 2", "80G", "80 gigabytes", "0x10", "nan", "inf", "1,5 MB"}) {
    EXPECT_THAT([&] { (void)parse_bytes(text); },
                ThrowsMessage<ConfigError>(
                    AllOf(HasSubstr('"' + std::string{text} + '"'), HasSubstr("80GiB"))))
        << text;
  }
}

TEST(ParseBytes, RefusesWhatDoesNotFit) {
  for (const char* text : {"18446744073709551616", "16EiB", "16.5 EiB", "99999999999999999999GiB",
                           "18446744073709551616.5"}) {
    EXPECT_THAT([&] { (void)parse_bytes(text); },
                ThrowsMessage<ConfigError>(HasSubstr("2^64 or more")))
        << text;
  }
  EXPECT_THROW((void)parse_bytes(std::string(400, '9') + ".5"), ConfigError);
}

}  // namespace
}  // namespace tessera::bytes_test
