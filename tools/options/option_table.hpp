#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Parses an option's text into the settings. ConfigError says what is wrong with the text; the
/// caller prepends the option's name.
using Apply = std::function<void(Settings&, const std::string& text)>;

/// One row of the table that defines the parser, the defaults and the help text.
struct OptionRow {
  std::string_view name;      ///< "--layers"
  std::string_view group;     ///< "model", "data", ...
  std::string_view value;     ///< shown after the name: "N"; empty for a switch
  std::string_view preset;    ///< the default, as a user would type it; empty: none
  std::string_view help;      ///< empty: an option of train only, named in a refusal
  std::string_view commands;  ///< names of the commands that take it
  Apply apply;                ///< empty: not in this build
  /// The library's names of the option, separated by spaces, which its messages quote. The first
  /// row of an option has them.
  std::string_view fields = {};
};

/// The group of options about files of options, which such files do not have.
inline constexpr std::string_view kConfigGroup = "options in files";

[[nodiscard]] const std::vector<OptionRow>& option_table();

/// Whether `command` takes the option.
[[nodiscard]] bool applies_to(const OptionRow& row, std::string_view command);

/// The text of `tessera COMMAND --help`.
[[nodiscard]] std::string help_text(std::string_view command);

}  // namespace tessera::tools
