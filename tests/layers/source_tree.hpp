#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::test {

/// A line of a source file, for messages.
struct SourceLine {
  std::string file;  ///< from the root of the repository
  int number = 0;
  std::string text;

  [[nodiscard]] std::string where() const {
    return file + ":" + std::to_string(number) + ": " + text;
  }
};

/// Every line of the C++ and CUDA files under `folder` of the repository at `root`.
inline std::vector<SourceLine> lines_under(const std::filesystem::path& root,
                                           const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<SourceLine> lines;
  if (!fs::exists(root / folder)) { return lines; }
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".hpp" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") {
      continue;
    }
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
