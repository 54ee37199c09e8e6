#include "base/shown.hpp"

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

}  // namespace

std::string shown(std::string_view text, std::size_t most_bytes) {
  std::size_t bytes = std::min(text.size(), most_bytes);
  while (bytes > 0 && bytes < text.size() && goes_on(text[bytes])) { --bytes; }
  std::string line{text.substr(0, bytes)};
  std::ranges::replace_if(line, is_control, '?');
  return bytes < text.size() ? line + "..." : line;
}

}  // namespace tessera
