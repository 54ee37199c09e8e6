#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// Whether `path` names a stream: a pipe, a terminal, another device, or a name in /dev or /proc
/// (/dev/stdout). Anything else is a file, which may not exist yet.
[[nodiscard]] bool is_stream(const std::filesystem::path& path);

/// ConfigError, naming `option`, unless a file can be written at `path` (AtomicFile). Changes
/// nothing.
void require_file(std::string_view option, const std::filesystem::path& path);
/// The same, except that `path` may be a stream. A pipe without a reader is only found when it is
/// opened.
void require_writable(std::string_view option, const std::filesystem::path& path);

struct Output {
  std::string_view option;
  std::filesystem::path path;  ///< none if empty
};

/// ConfigError that names both options if one of `outputs` would overwrite another. Several outputs
/// may share a device (/dev/null, a terminal).
void require_apart(const std::vector<Output>& outputs);

/// Writes `text` to `path`: as a whole file that replaces an earlier one, or into a stream. A
/// signal that would end the process does so afterwards. Errors: ConfigError if it is a pipe
/// without a reader, otherwise Error with path and cause.
void write_output(const std::filesystem::path& path, std::string_view text);

}  // namespace tessera::tools
