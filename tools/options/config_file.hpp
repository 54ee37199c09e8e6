#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The entry with the command for which the file was written.
inline constexpr std::string_view kCommandKey = "--command";

/// An option in a file of options.
struct ConfigEntry {
  std::string name;  ///< as on the command line: "--lr"
  std::string text;  ///< the value as it would be typed; "true" or "false" for a switch
  int line = 0;      ///< from 1
};

/// Parses a file of options (--config): lines `lr = 3e-4`, `strategy = "zero3"`, `resume = true`
/// and comments. All of it is TOML, or it is a word without quotes. `path` is for errors.
///
/// Errors: ConfigError with path and line for any other part of TOML (sections, lists, escapes) and
///         for a name that is there twice. It does not know which options exist.
[[nodiscard]] std::vector<ConfigEntry> parse_config(const std::string& path,
                                                    const std::string& content);

/// The text of a file of options for `command`: its name (kCommandKey), the options that `settings`
/// were given, and all others as comments with their defaults, by group. Throws ConfigError for a
/// value that such a file cannot hold.
[[nodiscard]] std::string config_text(std::string_view command, const Settings& settings);

/// Whether `content` is that of a file that config_text made.
[[nodiscard]] bool is_config_text(std::string_view content);

}  // namespace tessera::tools
