#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/options/arguments.hpp"

namespace tessera::tools {

/// An option of a command with several actions, such as `tessera bench`: its texts.
struct ActionOptionWords {
  std::string_view name;
  std::string_view value;    ///< as help shows it; empty: a switch
  std::string_view preset;   ///< the default; empty: none
  std::string_view help;     ///< one line
  std::string_view actions;  ///< names of the actions that take it
};

/// Whether `action` takes the option.
[[nodiscard]] inline bool has_action(const ActionOptionWords& option, std::string_view action) {
  return option.actions.find(action) != std::string_view::npos;
}

/// An option and its effect on `Settings`.
template <class Settings>
struct ActionOption : ActionOptionWords {
  using Apply = std::function<void(Settings&, const std::string&)>;
  ActionOption(std::string_view name_, std::string_view value_, std::string_view preset_,
               std::string_view help_, std::string_view actions_, Apply apply_)
      : ActionOptionWords{name_, value_, preset_, help_, actions_}, apply{std::move(apply_)} {}

  Apply apply;
};

/// Returns the options of `all` that `action` takes.
template <class Settings>
[[nodiscard]] std::vector<const ActionOptionWords*> options_of(
    const std::vector<ActionOption<Settings>>& all, std::string_view action) {
  std::vector<const ActionOptionWords*> options;
  for (const ActionOption<Settings>& option : all) {
    if (has_action(option, action)) { options.push_back(&option); }
  }
  return options;
}

/// The help lines for `options`.
[[nodiscard]] std::string help_on(const std::vector<const ActionOptionWords*>& options);

/// The names of `options`, for split_arguments.
[[nodiscard]] std::vector<OptionName> names_of(
    const std::vector<const ActionOptionWords*>& options);

/// ConfigError: `command` has no option `argument`. Suggests the nearest.
[[noreturn]] void refuse_option(const std::string& command,
                                const std::vector<const ActionOptionWords*>& options,
                                const std::string& argument);

/// ConfigError: `command` has no action `name`. Suggests the nearest, or lists all `names`.
[[noreturn]] void refuse_action(const std::string& command, const std::vector<std::string>& names,
                                const std::string& name);

/// Applies the options of `all` that `action` takes to `settings`, with the typed value or else the
/// preset. An error names the option.
template <class Settings>
void apply_options(const std::vector<ActionOption<Settings>>& all, std::string_view action,
                   const Arguments& typed, Settings& settings) {
  for (const ActionOption<Settings>& option : all) {
    if (!has_action(option, action)) { continue; }
    const bool given = typed.has(option.name);
    if (!given && option.preset.empty()) { continue; }
    try {
      option.apply(settings, given ? typed.value_of(option.name) : std::string{option.preset});
    } catch (const Error& error) {
      throw ConfigError(std::string{option.name} + ": " + shown(error.what()));
    }
  }
}

}  // namespace tessera::tools
