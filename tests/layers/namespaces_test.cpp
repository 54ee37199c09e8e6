// Private code of src/<folder> lies in tessera::<folder>, so `tessera` has public names only.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>
#include <vector>

#include "layers/source_tree.hpp"
#include "support/places.hpp"

namespace tessera::namespaces_test {
namespace {

using test::SourceLine;

/// Folders whose private headers declare in plain `tessera`, and why.
const std::map<std::string, std::string> kExempt = {
    {"base", "helpers of every layer; most of it is public"},
};

/// The folder of a private header ("comm" for "src/comm/a/b.hpp"); empty for other files.
std::string folder_of(const std::string& file) {
  static const std::regex header{R"(^src/(\w+)/.*\.hpp$)"};
  std::smatch match;
  return std::regex_search(file, match, header) ? match[1].str() : "";
}

/// Whether a private header opens a namespace in `line` that is not its folder's. Relies on the
/// formatting: a line in a namespace is not indented.
bool opens_another(const SourceLine& line) {
  static const std::regex opening{R"(^(?:inline )?namespace (tessera[\w:]*) \{)"};
  const std::string folder = folder_of(line.file);
  std::smatch match;
  if (folder.empty() || !std::regex_search(line.text, match, opening)) { return false; }
  const std::string own = "tessera::" + folder;
  const std::string opened = match[1].str();
  return opened != own && opened.rfind(own + "::", 0) != 0;
}

/// Headers with a declaration in a namespace that is not their folder's, exempt ones too. Forward
/// declarations of types, and specializations of templates, of other folders are allowed.
std::map<std::string, std::string> strays(const std::vector<SourceLine>& lines) {
  static const std::regex allowed{R"(^(?:class|struct|enum class) \w+(?: : [\w:]+)?;)"
                                  R"(|^template <>$|^inline constexpr .*\w<\w+> =|^//|^$)"};
  std::map<std::string, std::string> found;
  int depth = 0;  // namespaces that are open, from one that is not the folder's
  for (const SourceLine& line : lines) {
    if (line.number == 1) { depth = 0; }
    if (opens_another(line) || (depth > 0 && line.text.rfind("namespace ", 0) == 0)) {
      ++depth;
    } else if (depth > 0 && line.text.rfind('}', 0) == 0) {
      --depth;
    } else if (depth > 0 && !std::regex_search(line.text, allowed)) {
      found.emplace(line.file, line.where());
    }
  }
  return found;
}

TEST(Namespaces, APrivateHeaderDeclaresInTheNamespaceOfItsFolder) {
  const std::vector<SourceLine> lines = test::lines_under(test::kSourceDir, "src");
  EXPECT_GT(lines.size(), 10000U) << "the test has not found the sources";
  std::map<std::string, std::size_t> exempt;
  for (const auto& [file, where] : strays(lines)) {
    if (kExempt.contains(folder_of(file))) {
      ++exempt[folder_of(file)];
    } else {
      ADD_FAILURE() << where << "\n  is not in tessera::" << folder_of(file);
    }
  }
  for (const auto& [folder, reason] : kExempt) {
    EXPECT_GT(exempt[folder], 0U) << folder << " needs no exemption (" << reason << ")";
  }
}

TEST(Namespaces, TheTestSeesAStrayDeclaration) {
  const auto is_stray = [](const std::string& file, const std::string& opening,
                           const std::string& line) {
    return !strays({{file, 1, opening}, {file, 2, line}, {file, 3, "}  // namespace tessera"}})
                .empty();
  };
  EXPECT_TRUE(is_stray("src/comm/a.hpp", "namespace tessera {", "class Late {"));
  EXPECT_TRUE(is_stray("src/comm/a.hpp", "namespace tessera {", "int f();"));
  EXPECT_TRUE(is_stray("src/comm/a.hpp", "namespace tessera::engine {", "struct Late {"));
  EXPECT_FALSE(is_stray("src/comm/a.hpp", "namespace tessera {", "class World;"));
  EXPECT_FALSE(is_stray("src/comm/a.hpp", "namespace tessera::comm::nccl {", "int f();"));
  EXPECT_FALSE(is_stray("src/comm/a.cpp", "namespace tessera {", "int f() {"));
  EXPECT_FALSE(is_stray("include/tessera/comm/a.hpp", "namespace tessera {", "int f();"));
}

}  // namespace
}  // namespace tessera::namespaces_test
