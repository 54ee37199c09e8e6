#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// What an option does with its text. ConfigError says what is wrong with it; the option's name is
/// put before.
using Apply = std::function<void(Settings&, const std::string& text)>;

/// One row of the table that the parser, the defaults and the help text all come from.
struct OptionRow {
  std::string_view name;      ///< "--layers"
  std::string_view group;     ///< "model", "data", ...
  std::string_view value;     ///< what follows the name, as shown: "N"; empty for a switch
  std::string_view preset;    ///< the default, as a user would type it; empty: none
  std::string_view help;      ///< empty: known, but not in this build, and not shown
  std::string_view commands;  ///< names of the commands that have it
  Apply apply;                ///< empty: not in this build
};

[[nodiscard]] const std::vector<OptionRow>& option_table();

/// Whether `command` has the option.
[[nodiscard]] bool applies_to(const OptionRow& row, std::string_view command);

/// The text of `tessera COMMAND --help`.
[[nodiscard]] std::string help_text(std::string_view command);

}  // namespace tessera::tools
