#include "tools/options/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

[[noreturn]] void refuse(const std::string& command, const CLI::ParseError& error,
                         const std::string& repeated) {
  constexpr std::size_t most_shown = 1'000;  // bytes of an error that quotes a value
  if (!repeated.empty() && dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    throw ConfigError(
        fmt::format("{}: {} is given more than once; give it once", command, repeated));
  }
  throw ConfigError(
      fmt::format("{}: {}; see {} --help", command, shown(error.what(), most_shown), command));
}

}  // namespace

std::string Arguments::value_of(std::string_view option) const {
  const auto found = given.find(option);
  return found == given.end() ? std::string{} : found->second;
}

// CLI11 only splits: its errors name neither what is allowed nor what to write.
Arguments split_arguments(const std::string& command, const std::vector<OptionName>& options,
                          std::span<const char* const> arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const CLI::Option* const help = app.add_flag("-h,--help");
  std::map<std::string, std::string> texts;
  std::map<std::string, const CLI::Option*> known;
  for (const OptionName& option : options) {
    const std::string name{option.name};
    known[name] = option.is_switch ? app.add_flag(name)->disable_flag_override()
                                   : app.add_option(name, texts[name]);
  }
  // CLI11 takes the last argument first.
  std::vector<std::string> reversed{arguments.rbegin(), arguments.rend()};
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) { refuse(command, error, repeated_option(arguments)); }
  Arguments split{.help = help->count() > 0, .given = {}, .rest = app.remaining()};
  for (const auto& [name, option] : known) {
    if (option->count() > 0) { split.given[name] = texts[name]; }
  }
  return split;
}

std::string help_on_option(std::string_view name, std::string_view value, std::string_view help,
                           std::string_view preset) {
  std::string text{help};
  if (!preset.empty() && preset != help) { text += fmt::format(" (default {})", preset); }
  return fmt::format("  {:<21} {}\n", fmt::format("{} {}", name, value), wrapped(text, 72, 24));
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  while (text.size() > width) {
    const std::size_t blank = text.rfind(' ', width);
    if (blank == std::string_view::npos) { break; }
    out += fmt::format("{}\n{:{}}", text.substr(0, blank), "", indent);
    text.remove_prefix(blank + 1);
  }
  return out.append(text);
}

}  // namespace tessera::tools
