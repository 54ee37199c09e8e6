#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// Returns `text` with '?' for each control character but newlines and tabs, as a terminal may show
/// it.
[[nodiscard]] std::string printable(std::string_view text);

/// Returns `text` from another source as an error may quote it: with '?' for each control
/// character, and cut off with "..." after `most_bytes` bytes.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most_bytes = 200);

}  // namespace tessera
