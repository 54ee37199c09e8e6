#pragma once

#include <string>
#include <string_view>

namespace tessera::tools {

/// Reads the file at `path`, the value of `option`. Never waits.
///
/// Errors: ConfigError that begins with `option` unless it is a regular file of at most 64 MiB that
///         can be read: a pipe or a device may have no end.
[[nodiscard]] std::string read_input(std::string_view option, const std::string& path);

}  // namespace tessera::tools
