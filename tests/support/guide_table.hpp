#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/places.hpp"
#include "tessera/tessera.hpp"

namespace tessera::test {

/// A row of a guide's table of mistakes.
struct GuideRow {
  const char* mistake;  ///< its name on the page
  std::function<void()> make;
};

/// The kind of error, as named in the table.
inline std::string kind_of(const Error& error) {
  if (dynamic_cast<const ContractError*>(&error) != nullptr) { return "`ContractError`"; }
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) { return "`ConfigError`"; }
  if (dynamic_cast<const CommError*>(&error) != nullptr) { return "`CommError`"; }
  if (dynamic_cast<const NumericError*>(&error) != nullptr) { return "`NumericError`"; }
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) { return "`OutOfMemory`"; }
  return "`Error`";
}

/// `text` in one line, without the rank before it and the library's source line after it.
inline std::string without_place(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  static const std::regex place{R"(^rank \d+: | \([a-z_]+\.cpp:\d+\)$)"};
  return std::regex_replace(text, place, "");
}

/// The row as on the page: the mistake, the kind of error, its text.
inline std::string line_of(const GuideRow& row) {
  try {
    row.make();
    return std::string{row.mistake} + ": nobody noticed";
  } catch (const Error& error) {
    return std::string{"| "} + row.mistake + " | " + kind_of(error) + " | " +
           without_place(error.what()) + " |";
  }
}

/// Makes every mistake, and expects `page` to show exactly these rows, word for word.
inline void expect_table(const std::filesystem::path& page, const std::vector<GuideRow>& rows) {
  static const std::regex a_row{R"(^\| .* \| `(\w*Error|OutOfMemory)` \| )"};
  std::multiset<std::string> shown;
  std::ifstream file{std::filesystem::path{test::kSourceDir} / page};
  for (std::string line; std::getline(file, line);) {
    if (std::regex_search(line, a_row)) { shown.insert(line); }
  }
  for (const GuideRow& row : rows) {
    const std::string line = line_of(row);
    EXPECT_EQ(shown.erase(line), 1U) << page << " needs this line:\n" << line;
  }
  for (const std::string& line : shown) {
    ADD_FAILURE() << page << ": nothing makes this mistake:\n" << line;
  }
}

}  // namespace tessera::test
