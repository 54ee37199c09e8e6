#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// An option as a command line names it.
struct OptionName {
  std::string_view name;  ///< "--layers"
  bool is_switch = false;
};

/// The arguments of a command.
struct Arguments {
  bool help = false;
  std::map<std::string, std::string, std::less<>> given;  ///< with its value; empty for a switch
  std::vector<std::string> rest;                          ///< words that belong to no option

  [[nodiscard]] bool has(std::string_view option) const { return given.contains(option); }
  /// The option's value; empty if it was not given.
  [[nodiscard]] std::string value_of(std::string_view option) const;
};

/// Divides `arguments`, which follow `command`, such as "tessera bench adamw", among its options.
/// ConfigError for an option that lacks its value or is repeated.
[[nodiscard]] Arguments split_arguments(const std::string& command,
                                        const std::vector<OptionName>& options,
                                        std::span<const char* const> arguments);

/// The lines of a help text on an option. `value`: what it is shown to take; `preset`: its default.
/// Both may be empty.
[[nodiscard]] std::string help_on_option(std::string_view name, std::string_view value,
                                         std::string_view help, std::string_view preset);

/// `text` in lines of at most `width`, indented from the second line on.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace tessera::tools
