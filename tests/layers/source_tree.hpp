#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace tessera::test {

/// A line of a source file, for messages.
struct SourceLine {
  std::string file;  ///< path from the root of the repository
  int number = 0;
  std::string text;

  [[nodiscard]] std::string where() const {
    return file + ":" + std::to_string(number) + ": " + text;
  }
};

/// Every line of the C, C++ and CUDA files under `folder` of the repository at `root`.
inline std::vector<SourceLine> lines_under(const std::filesystem::path& root,
                                           const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<SourceLine> lines;
  if (!fs::exists(root / folder)) { return lines; }
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    static const std::set<std::string> extensions = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".c"};
    if (extensions.count(entry.path().extension()) == 0) { continue; }
    std::ifstream file{entry.path()};
    SourceLine line{fs::relative(entry.path(), root).string(), 0, ""};
    while (std::getline(file, line.text)) {
      ++line.number;
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace tessera::test
