#include "tessera/base/shown.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

// A continuation byte of UTF-8: characters are not cut in two.
bool goes_on(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// U+0080 to U+009F, two bytes in UTF-8: some terminals take them for escape sequences.
bool is_wide_control(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at] != '\xC2') { return false; }
  const auto second = static_cast<unsigned char>(text[at + 1]);
  return second >= 0x80 && second < 0xA0;
}

template <class Keeps>
std::string without_controls(std::string_view text, const Keeps& keeps) {
  std::string line{text};
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (is_wide_control(line, at)) {
      line[at] = line[at + 1] = '?';
    } else if (is_control(line[at]) && !keeps(line[at])) {
      line[at] = '?';
    }
  }
  return line;
}

}  // namespace

std::string printable(std::string_view text) {
  return without_controls(text, [](char c) { return c == '\n' || c == '\t'; });
}

std::string shown(std::string_view text, std::size_t most_bytes) {
  std::size_t bytes = std::min(text.size(), most_bytes);
  while (bytes > 0 && bytes < text.size() && goes_on(text[bytes])) { --bytes; }
  const std::string line = without_controls(text.substr(0, bytes), [](char) { return false; });
  return bytes < text.size() ? line + "..." : line;
}

std::string shown_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", shown(names[i]));
  }
  return names.size() > most ? fmt::format("{} and {} more", text, names.size() - most) : text;
}

}  // namespace tessera
