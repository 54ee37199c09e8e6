#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tessera::tools {

/// `title`, a bar filled to `done` of `all`, and `rest`, in one line of the terminal `file`.
[[nodiscard]] std::string progress_line(std::FILE* file, std::string_view title, std::uint64_t done,
                                        std::uint64_t all, std::string_view rest);

}  // namespace tessera::tools
