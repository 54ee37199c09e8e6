#pragma once

#include <cstdio>
#include <string_view>

namespace tessera::tools {

/// Prints a line of a run that goes on whether or not somebody reads it: what standard output could
/// not take is reported at the end (main).
inline void say(std::string_view text, std::FILE* file = stdout) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace tessera::tools
