#pragma once

#include <span>
#include <string>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The request of a command line.
struct Request {
  std::string command;  ///< "train", "compare", "doctor"; empty with `text`
  Settings settings;
  std::string text;  ///< text to print instead: help or version
  std::string note;  ///< text to print to standard error before the command runs
};

/// Parses the arguments after the program's name. ConfigError, in one or two lines, for anything
/// that this build does not know or does not have.
[[nodiscard]] Request parse_command_line(std::span<const char* const> arguments);

/// Writes the file of options that `--write-config` names. ConfigError if it cannot be written or
/// cannot hold a value.
void write_config(const Request& request);

}  // namespace tessera::tools
