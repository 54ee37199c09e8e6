#include "tools/options/action_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {

std::string help_on(const std::vector<const ActionOptionWords*>& options) {
  std::string text;
  for (const ActionOptionWords* const option : options) {
    text += help_on_option(option->name, option->value, option->help, option->preset);
  }
  return text;
}

std::vector<OptionName> names_of(const std::vector<const ActionOptionWords*>& options) {
  std::vector<OptionName> names;
  for (const ActionOptionWords* const option : options) {
    names.push_back({option->name, option->value.empty()});
  }
  return names;
}

void refuse_option(const std::string& command, const std::vector<const ActionOptionWords*>& options,
                   const std::string& argument) {
  std::vector<std::string> names;
  for (const ActionOptionWords* const option : options) { names.emplace_back(option->name); }
  const std::string meant = nearest(argument, names);
  throw ConfigError(fmt::format("{} does not know '{}'; {}", command, shown(argument),
                                meant.empty() ? fmt::format("see {} --help", command)
                                              : fmt::format("did you mean {}?", meant)));
}

void refuse_action(const std::string& command, const std::vector<std::string>& names,
                   const std::string& name) {
  const std::string meant = nearest(name, names);
  throw ConfigError(fmt::format("{} does not know '{}'; {}", command, shown(name),
                                meant.empty() ? fmt::format("it has {}", fmt::join(names, ", "))
                                              : fmt::format("did you mean {}?", meant)));
}

}  // namespace tessera::tools
