// The tests that docs/peers.md names exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "support/places.hpp"

namespace tessera::peers_test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Every "Suite.Name" of TEST, TEST_F and TEST_P under `folder`. For TEST_P also "Suite/Text" for
/// every quoted text of the file, since these texts name the cases.
std::set<std::string> tests_under(const fs::path& folder) {
  static const std::regex test{R"(\nTEST(_F|_P)?\(\s*(\w+),\s*(\w+)\s*\))"};
  static const std::regex quoted{R"re("(\w+)")re"};
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.path().filename().string().ends_with("_test.cpp")) { continue; }
    const std::string text = text_of(entry.path());
    std::set<std::string> suites;
    for (std::sregex_iterator i{text.begin(), text.end(), test}, end; i != end; ++i) {
      found.insert((*i)[2].str() + "." + (*i)[3].str());
      if ((*i)[1] == "_P") { suites.insert((*i)[2].str()); }
    }
    if (suites.empty()) { continue; }
    for (std::sregex_iterator i{text.begin(), text.end(), quoted}, end; i != end; ++i) {
      for (const std::string& suite : suites) { found.insert(suite + "/" + (*i)[1].str()); }
    }
  }
  return found;
}

/// The test names on a page: `Suite.Name` and `Suite/Case`.
std::set<std::string> named_in(const std::string& page) {
  static const std::regex name{R"(`([A-Z]\w+[./][A-Z]\w+)`)"};
  std::set<std::string> names;
  for (std::sregex_iterator i{page.begin(), page.end(), name}, end; i != end; ++i) {
    names.insert((*i)[1].str());
  }
  return names;
}

TEST(Peers, TestsThatThePageNamesExist) {
  const fs::path root = test::kSourceDir;
  const std::set<std::string> tests = tests_under(root / "tests");
  const std::set<std::string> named = named_in(text_of(root / "docs/peers.md"));
  EXPECT_GT(named.size(), 40U) << "the test has not found the page";
  for (const std::string& name : named) {
    EXPECT_TRUE(tests.contains(name) || name == "Suite/Case") << "there is no " << name;
  }
}

}  // namespace
}  // namespace tessera::peers_test
