#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// Returns a byte size as text: "0 B", "640 B", "1.50 KiB", "24.0 GiB" (three digits, binary
/// units).
[[nodiscard]] std::string format_bytes(std::size_t bytes);

/// Parses a byte size: "4096", "80GiB", "1.5 MiB", "10MB" (decimal units are powers of 1000).
/// Throws ConfigError that shows an example if `text` is not a size, or is 2^64 bytes or more.
[[nodiscard]] std::size_t parse_bytes(std::string_view text);

}  // namespace tessera
