#include "tools/common/progress_bar.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>

namespace tessera::tools {
namespace {

constexpr std::size_t kShortestBar = 4;
constexpr std::size_t kLongestBar = 24;

std::size_t terminal_width(std::FILE* file) {
  winsize size{};
  const bool known = ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string bar(std::uint64_t done, std::uint64_t all, std::size_t width) {
  const double share =
      static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(all, 1));
  const auto filled = static_cast<std::size_t>(std::min(share, 1.0) * static_cast<double>(width));
  return fmt::format("[{:=<{}}{:{}}]", "", filled, "", width - filled);
}

}  // namespace

std::string progress_line(std::FILE* file, std::string_view title, std::uint64_t done,
                          std::uint64_t all, std::string_view rest) {
  const std::size_t room = terminal_width(file) - 1;
  const std::size_t taken = title.size() + rest.size() + 2;
  const std::size_t width = std::clamp(room - std::min(room, taken), kShortestBar, kLongestBar);
  std::string line = fmt::format("{}{}{}", title, bar(done, all, width), rest);
  line.resize(std::min(line.size(), room));
  return line;
}

}  // namespace tessera::tools
