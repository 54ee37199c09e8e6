// A headless Chromium, if installed.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "support/temporary_folder.hpp"

namespace tessera::test {

inline std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// A loaded page: its elements after its scripts have run, and the browser's messages.
struct Loaded {
  std::string dom;      ///< the whole page, including the scripts' source
  std::string drawn;    ///< the element that the scripts fill
  std::string console;  ///< one line per message; empty if there are none

  [[nodiscard]] bool shows(std::string_view text) const {
    return drawn.find(text) != std::string::npos;
  }
};

inline std::string drawn_part(const std::string& dom) {
  const std::size_t begin = dom.find("<main ");
  const std::size_t end = dom.find("</main>");
  return end == std::string::npos ? "" : dom.substr(begin, end - begin);
}

class Browser {
 public:
  /// Why no browser is available for tests; empty if one is.
  static std::string missing() {
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) {
      return "chromium is not installed (Debian: apt-get install chromium)";
    }
    // A snap does not see these files, and does not start as root.
    if (std::system("readlink -f \"$(command -v chromium)\" | grep -q snap") == 0) {
      return "chromium is a snap here, which cannot read files of other programs";
    }
    return "";
  }

  /// Loads `html` in a window of `width` by 900.
  [[nodiscard]] Loaded load(const std::string& html, int width = 1200) const {
    const std::filesystem::path page = folder_.write("page.html", html);
    const std::string command = fmt::format(
        "timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--no-first-run --user-data-dir='{}' --window-size={},900 --enable-logging=stderr --v=0 "
        "--dump-dom 'file://{}' >'{}' 2>'{}'",
        (folder_ / "profile").string(), width, page.string(), (folder_ / "dom").string(),
        (folder_ / "log").string());
    // A browser that does not start says nothing about the page: try once more.
    int status = std::system(command.c_str());
    if (status != 0 && text_of_file(folder_ / "dom").empty()) {
      status = std::system(command.c_str());
    }
    EXPECT_EQ(status, 0) << text_of_file(folder_ / "log");
    const std::string dom = text_of_file(folder_ / "dom");
    return {dom, drawn_part(dom), console_lines()};
  }

 private:
  [[nodiscard]] std::string console_lines() const {
    std::ifstream log{folder_ / "log"};
    std::string lines;
    for (std::string line; std::getline(log, line);) {
      if (line.find("CONSOLE") != std::string::npos) { lines += line + "\n"; }
    }
    return lines;
  }

  TemporaryFolder folder_;
};

}  // namespace tessera::test
