#include "tessera/base/shown.hpp"

#include <gtest/gtest.h>

namespace tessera::shown_test {
namespace {

TEST(Shown, HasNoControlCharacters) {
  EXPECT_EQ(shown(std::string_view{"wte\x1b[2J\r\n\0 \x7F\xC3\xA4", 14}), "wte?[2J??? ?\xC3\xA4");
}

TEST(Shown, HasNoControlCharactersOfTwoBytesEither) {
  EXPECT_EQ(shown("a\xC2\x9B\x33Jb\xC2\xA0"), "a??3Jb\xC2\xA0");
}

TEST(Shown, WhatIsPrintableKeepsNewlinesAndTabs) {
  EXPECT_EQ(printable("a\n\tb\x1b[2J\a\r"), "a\n\tb?[2J??");
}

TEST(Shown, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(shown("abcd", 4), "abcd");
  EXPECT_EQ(shown("abcde", 4), "abcd...");
  EXPECT_EQ(shown("ab\xE2\x82\xAC!", 5), "ab\xE2\x82\xAC...");
  EXPECT_EQ(shown("ab\xE2\x82\xAC!", 4), "ab...");
  EXPECT_EQ(shown("\x80\x80\x80", 2), "...");
}

TEST(Shown, AListEndsAfterFourNames) {
  EXPECT_EQ(shown_names({"a", "b\n"}), "'a', 'b?'");
  EXPECT_EQ(shown_names({"a", "b", "c", "d", "e", "f"}), "'a', 'b', 'c', 'd' and 2 more");
}

}  // namespace
}  // namespace tessera::shown_test
