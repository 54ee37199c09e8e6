#include "tools/options/config_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/options/option_table.hpp"

namespace tessera::tools {
namespace {

constexpr std::string_view kFirstWords = "# Options of tessera ";
constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) { return {}; }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool is_comment_or_empty(std::string_view text) {
  return trimmed(text).empty() || trimmed(text).front() == '#';
}

/// The value at the start of `text`. Throws ConfigError that says what is wrong with it.
std::string value_in(std::string_view text) {
  const char quote = text.empty() ? '\0' : text.front();
  if (quote == '"' || quote == '\'') {
    const std::size_t end = text.find(quote, 1);
    if (end == std::string_view::npos) { throw ConfigError("its closing quote is missing"); }
    const std::string_view value = text.substr(1, end - 1);
    if (!is_comment_or_empty(text.substr(end + 1))) {
      throw ConfigError("more text follows its closing quote");
    }
    if (quote == '"' && value.find('\\') != std::string_view::npos) {
      throw ConfigError("escapes are not read; write text with a backslash in single quotes");
    }
    return std::string{value};
  }
  const std::size_t end = std::min(text.find_first_of(" \t\r#"), text.size());
  const std::string_view value = text.substr(0, end);
  if (value.empty()) { throw ConfigError("it has no value"); }
  if (value.find_first_of("[]{},\"'") != std::string_view::npos ||
      !is_comment_or_empty(text.substr(end))) {
    throw ConfigError("write a list or a text in quotes, as on the command line: \"ddp,zero3\"");
  }
  return std::string{value};
}

ConfigEntry entry_in(std::string_view line) {
  if (line.front() == '[') {
    throw ConfigError("sections are not read; write every option on the top level");
  }
  const std::size_t equals = line.find('=');
  const std::string name{trimmed(line.substr(0, std::min(equals, line.size())))};
  if (equals == std::string_view::npos || name.empty()) {
    throw ConfigError(fmt::format("'{}' is not NAME = VALUE", shown(line)));
  }
  try {
    return {.name = "--" + name, .text = value_in(trimmed(line.substr(equals + 1)))};
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", shown(name), error.what()));
  }
}

/// Whether TOML reads `text` as a number. A longer text is taken for none, since std::regex
/// recurses for each character.
bool is_number(const std::string& text) {
  constexpr std::size_t most = 40;
  static const std::regex number{R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[-+]?[0-9]+)?)"};
  return text.size() <= most && std::regex_match(text, number);
}

/// A value as such a file has it.
std::string written(const OptionRow& row, const std::string& text) {
  const auto has = [&](std::string_view any) {
    return text.find_first_of(any) != std::string::npos;
  };
  if (is_number(text)) { return text; }
  if (!has("\n\r") && !has("\"\\")) { return fmt::format("\"{}\"", text); }
  if (!has("\n\r") && !has("'")) { return fmt::format("'{}'", text); }
  throw ConfigError(
      fmt::format("--write-config: a file cannot hold this value of {}: it has a line break, or a "
                  "single quote beside a double quote or a backslash; leave it out, and give it on "
                  "the command line",
                  row.name));
}

}  // namespace

std::vector<ConfigEntry> parse_config(const std::string& path, const std::string& content) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  std::istringstream lines{
      content.substr(content.starts_with(byte_order_mark) ? byte_order_mark.size() : 0)};
  std::vector<ConfigEntry> entries;
  std::set<std::string> seen;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (is_comment_or_empty(line)) { continue; }
    try {
      entries.push_back(entry_in(trimmed(line)));
      entries.back().line = number;
      if (!seen.insert(entries.back().name).second) {
        throw ConfigError(fmt::format("{} is given more than once; give it once",
                                      shown(std::string_view{entries.back().name}.substr(2))));
      }
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}, line {}: {}", shown(path), number, error.what()));
    }
  }
  return entries;
}

bool is_config_text(std::string_view content) {
  return content.starts_with(kFirstWords);
}

std::string config_text(std::string_view command, const Settings& settings) {
  std::string text =
      fmt::format("{}{}: tessera {} --config FILE. Lines with # are comments.\n{} = \"{}\"\n",
                  kFirstWords, command, command, kCommandKey.substr(2), command);
  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (!applies_to(row, command) || row.help.empty() || row.group == kConfigGroup) { continue; }
    if (row.group != group) { text += fmt::format("\n# {}\n", row.group); }
    group = row.group;
    const std::string_view key = row.name.substr(2);
    const auto typed = std::ranges::find(settings.given, row.name);
    if (typed == settings.given.end()) {
      text += fmt::format("# {} = {}\n", key,
                          row.value.empty()    ? "false"
                          : row.preset.empty() ? std::string{row.value}
                                               : written(row, std::string{row.preset}));
      continue;
    }
    const auto value = std::ranges::find(settings.effective, row.name,
                                         [](const auto& pair) { return pair.first; });
    text += fmt::format("{} = {}\n", key, row.value.empty() ? "true" : written(row, value->second));
  }
  return text;
}

}  // namespace tessera::tools
