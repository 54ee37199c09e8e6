#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// Whether what is at `path` takes bytes as they come: a pipe, a terminal, another device, or a
/// name in /dev or /proc (/dev/stdout). All else is a file, there or to be made.
[[nodiscard]] bool is_stream(const std::filesystem::path& path);

/// ConfigError, naming `option`, unless a file can be put at `path` (AtomicFile). Changes nothing.
void require_file(std::string_view option, const std::filesystem::path& path);
/// The same, but that `path` may be a stream. Whether somebody reads a pipe shows when it is
/// opened.
void require_writable(std::string_view option, const std::filesystem::path& path);

struct Output {
  std::string_view option;
  std::filesystem::path path;  ///< none if empty
};

/// ConfigError that names both options if one of `outputs` would overwrite another. Devices
/// (/dev/null, a terminal) take what several write.
void require_apart(const std::vector<Output>& outputs);

/// Puts `text` at `path`: as a whole file that takes the place of an earlier one, or into a stream.
/// A signal that would end the process does so afterwards. Errors: ConfigError if it is a pipe
/// without a reader, otherwise Error with path and cause.
void write_output(const std::filesystem::path& path, std::string_view text);

}  // namespace tessera::tools
