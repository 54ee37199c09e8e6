#pragma once

#include <cstdio>
#include <string_view>

namespace tessera::tools {

/// Prints a line of a run that continues even if nobody reads it: main reports at the end whether
/// standard output failed.
inline void say(std::string_view text, std::FILE* file = stdout) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace tessera::tools
