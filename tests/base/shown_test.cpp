#include "base/shown.hpp"

#include <gtest/gtest.h>

namespace tessera::shown_test {
namespace {

TEST(Shown, HasNoControlCharacters) {
  EXPECT_EQ(shown(std::string_view{"wte\x1b[2J\r\n\0 \x7F\xC3\xA4", 14}), "wte?[2J??? ?\xC3\xA4");
}

TEST(Shown, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(shown("abcd", 4), "abcd");
  EXPECT_EQ(shown("abcde", 4), "abcd...");
  EXPECT_EQ(shown("ab\xE2\x82\xAC!", 5), "ab\xE2\x82\xAC...");
  EXPECT_EQ(shown("ab\xE2\x82\xAC!", 4), "ab...");
  EXPECT_EQ(shown("\x80\x80\x80", 2), "...");
}

}  // namespace
}  // namespace tessera::shown_test
