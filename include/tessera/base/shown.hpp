#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns `text` with '?' for each control character but newlines and tabs, as a terminal may show
/// it.
[[nodiscard]] std::string printable(std::string_view text);

/// Returns `text` from another source as an error may quote it: with '?' for each control
/// character, and cut off with "..." after `most_bytes` bytes.
[[nodiscard]] std::string shown(std::string_view text, std::size_t most_bytes = 200);

/// Returns the first four of `names`, each `shown`, as an error may list them: "'a', 'b'", or
/// "'a', 'b', 'c', 'd' and 1 more".
[[nodiscard]] std::string shown_names(const std::vector<std::string>& names);

}  // namespace tessera
