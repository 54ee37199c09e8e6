#include "tools/options/action_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {

std::string help_on(const std::vector<const ActionOptionWords*>& options) {
  std::string text;
  for (const ActionOptionWords* const option : options) {
    text +=
        fmt::format("  {:<21} {}", fmt::format("{} {}", option->name, option->value), option->help);
    text += option->preset.empty() ? "\n" : fmt::format(" (default {})\n", option->preset);
  }
  return text;
}

ActionWords parse_action(const std::string& command,
                         const std::vector<const ActionOptionWords*>& options,
                         std::span<const char* const> arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const CLI::Option* const help = app.add_flag("-h,--help");
  std::map<std::string, std::string> texts;
  std::vector<std::pair<const ActionOptionWords*, const CLI::Option*>> known;
  for (const ActionOptionWords* const option : options) {
    const std::string name{option->name};
    known.emplace_back(option, option->value.empty() ? app.add_flag(name)->disable_flag_override()
                                                     : app.add_option(name, texts[name]));
  }
  // CLI11 takes the last argument first.
  std::vector<std::string> reversed{arguments.rbegin(), arguments.rend()};
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    const std::string twice = repeated_option(arguments);
    const bool mismatch = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
    throw ConfigError(
        mismatch && !twice.empty()
            ? fmt::format("{}: {} is given more than once; give it once", command, twice)
            : fmt::format("{}: {}; see {} --help", command, shown(error.what()), command));
  }
  ActionWords words{.help = help->count() > 0, .given = {}, .rest = app.remaining()};
  for (const auto& [option, parsed] : known) {
    if (parsed->count() == 0) { continue; }
    words.given[option] = option->value.empty() ? "" : texts.at(std::string{option->name});
  }
  return words;
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
