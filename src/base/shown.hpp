#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// `text`, which somebody else has written, as an error may quote it: without control characters
/// ('?' stands for each), and cut off with "..." behind `most_bytes` bytes.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most_bytes = 200);

}  // namespace tessera
