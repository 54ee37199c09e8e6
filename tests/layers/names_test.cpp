// No type of a namespace is defined twice: a program that links both would get either definition.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layers/source_tree.hpp"
#include "support/places.hpp"

namespace tessera::names_test {
namespace {

using test::SourceLine;

/// Maps full names of externally visible types to the lines of their definitions. Relies on the
/// formatting: the contents of a namespace are not indented.
std::map<std::string, std::vector<std::string>> definitions(const std::vector<SourceLine>& lines) {
  static const std::regex opening{R"(^(?:inline )?namespace ?([\w:]*) \{$)"};
  static const std::regex type{
      R"(^(?:enum class|enum|struct|class|union) (?:alignas\(.*\) )?([\w:]+)(?: final)?(?: :.*)? \{)"};
  std::map<std::string, std::vector<std::string>> found;
  std::vector<std::string> scopes;
  std::string file;
  for (const SourceLine& line : lines) {
    if (std::exchange(file, line.file) != line.file) { scopes.clear(); }
    std::smatch match;
    if (std::regex_search(line.text, match, opening)) {
      scopes.push_back(match[1].str());
    } else if (line.text.rfind("}  // namespace", 0) == 0 && !scopes.empty()) {
      scopes.pop_back();
    } else if (std::regex_search(line.text, match, type)) {
      std::string name;
      bool seen_elsewhere = true;
      for (const std::string& scope : scopes) {
        name += scope + "::";
        seen_elsewhere = seen_elsewhere && !scope.empty();
      }
      if (seen_elsewhere) { found[name + match[1].str()].push_back(line.where()); }
    }
  }
  return found;
}

TEST(Names, NoTypeIsDefinedTwice) {
  std::vector<SourceLine> lines;
  for (const char* folder : {"include", "src", "kernels", "bench", "tools"}) {
    const auto more = test::lines_under(test::kSourceDir, folder);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  const auto found = definitions(lines);
  EXPECT_GT(found.size(), 300U) << "the test has not found the types";
  for (const auto& [name, places] : found) {
    for (std::size_t i = 1; i < places.size(); ++i) {
      ADD_FAILURE() << name << " is defined in\n  " << places[0] << "\n  " << places[i];
    }
  }
}

TEST(Names, TheTestSeesASecondDefinition) {
  const std::vector<SourceLine> lines = {
      {"a.hpp", 1, "namespace tessera {"}, {"a.hpp", 2, "enum class Purpose : std::uint8_t {"},
      {"a.hpp", 3, "struct Purpose;"},     {"b.hpp", 1, "namespace tessera {"},
      {"b.hpp", 2, "namespace {"},         {"b.hpp", 3, "struct Purpose {"},
      {"b.hpp", 4, "}  // namespace"},     {"b.hpp", 5, "class Purpose final : Base {"}};
  const auto found = definitions(lines);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.at("tessera::Purpose").size(), 2U);
}

/// The types with which messages in `lines` begin ("Decoder::forward: ...").
std::map<std::string, std::string> types_in_messages(const std::vector<SourceLine>& lines) {
  static const std::regex message{R"re("([A-Z]\w+)(?:::\w+)?: )re"};
  std::map<std::string, std::string> found;  // with the place of one
  for (const SourceLine& line : lines) {
    std::smatch match;
    if (std::regex_search(line.text, match, message)) { found[match[1].str()] = line.where(); }
  }
  return found;
}

// A user cannot look up a name that no public header has.
TEST(Names, MessagesBeginWithNamesOfPublicTypes) {
  std::set<std::string> known{"Rss"};  // of /proc
  const std::regex type{R"(\b(?:class|struct|enum class|using) (\w+))"};
  for (const SourceLine& line : test::lines_under(test::kSourceDir, "include")) {
    std::smatch match;
    if (std::regex_search(line.text, match, type)) { known.insert(match[1].str()); }
  }
  // Contracts of the library with itself, which no call of a user breaks.
  known.insert({"CheckpointReader", "CheckpointStore", "DataFile", "ReadAhead", "TensorSums"});
  const auto found = types_in_messages(test::lines_under(test::kSourceDir, "src"));
  EXPECT_GT(found.size(), 10U) << "the test has not found the messages";
  for (const auto& [name, place] : found) { EXPECT_TRUE(known.contains(name)) << place; }
}

}  // namespace
}  // namespace tessera::names_test
