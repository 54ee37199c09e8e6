#include "device/cuda_architectures.hpp"

#include <charconv>
#include <system_error>

namespace tessera::device {
namespace {

bool is_of(std::string_view entry, int major, int minor) {
  int number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc{}) { return true; }
  entry.remove_prefix(static_cast<std::size_t>(end - entry.data()));
  const bool same_major = number / 10 == major;
  const bool minor_reached = number % 10 <= minor;
  if (entry.starts_with('a')) { return same_major && number % 10 == minor; }
  if (entry.starts_with('f')) { return same_major && minor_reached; }
  const bool real = entry != "-virtual" && same_major && minor_reached;
  const bool compiled_later = entry != "-real" && 10 * major + minor >= number;
  return real || compiled_later;
}

}  // namespace

bool has_code_for(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const std::size_t end = architectures.find_first_of(",;");
    const std::string_view entry = architectures.substr(0, end);
    if (!entry.empty() && is_of(entry, major, minor)) { return true; }
    architectures.remove_prefix(end == std::string_view::npos ? architectures.size() : end + 1);
  }
  return false;
}

}  // namespace tessera::device
