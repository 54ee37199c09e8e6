#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tessera::tools {

/// `title`, a bar that is filled as `done` of `all` says, and `rest`: in one line of the terminal
/// that `file` is.
[[nodiscard]] std::string progress_line(std::FILE* file, std::string_view title, std::uint64_t done,
                                        std::uint64_t all, std::string_view rest);

}  // namespace tessera::tools
