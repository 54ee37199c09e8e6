#include "tools/options/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tools/common/input_file.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/arguments.hpp"
#include "tools/options/config_file.hpp"
#include "tools/options/option_table.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

constexpr std::size_t kMostShown = 1'000;  // bytes of an error that quotes a value

const std::vector<std::string> kCommands = {"train",  "compare",    "plan",  "scale",
                                            "sample", "checkpoint", "bench", "doctor"};

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string usage() {
  return "Trains neural networks with their training state sharded over ranks.\n\n"
         "usage: tessera COMMAND [options]\n\n"
         "  train       train a GPT on N ranks\n"
         "  compare     train it under several strategies and compare time and memory\n"
         "  plan        say what each rank would hold, before anything runs\n"
         "  scale       find the largest models that fit a budget, by strategy and ranks\n"
         "  sample      draw text from a trained model\n"
         "  checkpoint  list, verify, compare, export and merge checkpoints\n"
         "  bench       measure this build beside the machine's limits\n"
         "  doctor      show what this machine and this build have, and what is missing\n\n"
         "tessera COMMAND --help lists a command's options.\n";
}

std::string checked_command(const std::string& name) {
  if (!contains(kCommands, name)) {
    const std::string meant = nearest(name, kCommands);
    throw ConfigError(
        fmt::format("'{}' is not a command of tessera; {}", shown(name),
                    meant.empty() ? "see tessera --help" : fmt::format("did you mean {}?", meant)));
  }
  return name;
}

/// "train, compare"; empty if no command has the option.
std::string commands_with(std::string_view option) {
  std::vector<std::string> commands;
  for (const std::string& command : kCommands) {
    const auto& table = option_table();
    if (std::any_of(table.begin(), table.end(), [&](const OptionRow& row) {
          return row.name == option && row.apply && applies_to(row, command);
        })) {
      commands.push_back("tessera " + command);
    }
  }
  return fmt::format("{}", fmt::join(commands, ", "));
}

[[noreturn]] void refuse_unknown(const std::string& command, const std::string& argument) {
  std::vector<std::string> known;
  for (const OptionRow& row : option_table()) {
    if (applies_to(row, command)) { known.emplace_back(row.name); }
  }
  const std::string others = commands_with(argument);
  const std::string meant = nearest(argument, known);
  std::string hint;
  if (!meant.empty()) { hint = fmt::format("did you mean {}?", meant); }
  if (!others.empty()) {
    hint += fmt::format("{}it is an option of {}", hint.empty() ? "" : " ", others);
  }
  if (hint.empty()) { hint = fmt::format("see tessera {} --help", command); }
  throw ConfigError(
      fmt::format("tessera {} does not know '{}'; {}", command, shown(argument), hint));
}

void apply(const OptionRow& row, const std::string& text, Settings& settings) {
  if (!row.apply) { throw ConfigError(fmt::format("{} is an option of tessera train", row.name)); }
  try {
    row.apply(settings, text);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: {}", row.name, shown(error.what(), kMostShown)));
  }
}

Settings defaults_of_train() {
  Settings settings;
  for (const OptionRow& row : option_table()) {
    if (!row.preset.empty() && applies_to(row, "train")) {
      apply(row, std::string{row.preset}, settings);
    }
  }
  return settings;
}

class Parser {
 public:
  explicit Parser(std::string command) : command_{std::move(command)} {
    for (const OptionRow& row : option_table()) {
      if (applies_to(row, command_)) { rows_.push_back(&row); }
    }
  }

  Request parse(std::span<const char* const> arguments) {
    std::vector<OptionName> names;
    for (const OptionRow* const row : rows_) { names.push_back({row->name, row->value.empty()}); }
    typed_ = split_arguments("tessera " + command_, names, arguments);
    if (typed_.help) { return {"", {}, help_text(command_), ""}; }
    if (!typed_.rest.empty()) { refuse_unknown(command_, typed_.rest.front()); }
    take_config();
    return {command_, settings(), "", note()};
  }

 private:
  /// Takes what --config's file has and the command line has not.
  void take_config() {
    const std::string path = typed_.value_of("--config");
    if (path.empty()) { return; }
    try {
      const auto entries = parse_config(path, read_input("--config", path));
      const auto written_for = std::ranges::find(entries, kCommandKey, &ConfigEntry::name);
      const bool of_another = written_for != entries.end() && written_for->text != command_;
      for (const ConfigEntry& entry : entries) {
        if (entry.name != kCommandKey) {
          in_file(entry, [&] { take(entry, of_another); });
        }
      }
      require_apart_from(path);
    } catch (const ConfigError& error) { throw ConfigError(shown(error.what(), kMostShown)); }
  }

  /// Calls `work`, whose ConfigError then says where in --config's file `entry` is.
  template <class Work>
  void in_file(const ConfigEntry& entry, const Work& work) const {
    try {
      work();
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}, line {}: {}", shown(typed_.value_of("--config")),
                                    entry.line, error.what()));
    }
  }

  /// A file may serve several commands. What only others have is left out, and said; so are the
  /// files that another command writes, which this one would replace.
  void take(const ConfigEntry& entry, bool of_another) {
    const auto found = std::ranges::find_if(
        rows_, [&](const OptionRow* known) { return known->name == entry.name && known->apply; });
    if (found == rows_.end()) {
      if (commands_with(entry.name).empty()) { refuse_unknown(command_, entry.name); }
      left_out_.push_back(entry.name);
      return;
    }
    const OptionRow& row = **found;
    if (row.group == kConfigGroup) {
      throw ConfigError("a file of options cannot name another; give it on the command line");
    }
    const bool is_switch = row.value.empty();
    if (is_switch && entry.text != "true" && entry.text != "false") {
      throw ConfigError(fmt::format("{}: '{}' is neither true nor false", entry.name,
                                    shown(entry.text, kMostShown)));
    }
    if (typed_.has(row.name) || (is_switch && entry.text == "false")) { return; }
    if (of_another && is_output(row)) {
      left_out_.push_back(entry.name);
    } else {
      from_config_.emplace(&row, entry);
    }
  }

  static bool is_output(const OptionRow& row) {
    return row.group == "output" && row.value == "FILE";
  }

  void require_apart_from(const std::string& path) const {
    for (const OptionRow* const row : rows_) {
      if (!is_output(*row)) { continue; }
      const auto configured = from_config_.find(row);
      const std::string output =
          configured != from_config_.end() ? configured->second.text : typed_.value_of(row->name);
      std::error_code ignored;
      if (!output.empty() && std::filesystem::equivalent(output, path, ignored)) {
        throw ConfigError(
            fmt::format("{}: {} is read as --config; write to another file", row->name, path));
      }
    }
  }

  [[nodiscard]] std::string note() const {
    if (left_out_.empty()) { return {}; }
    return fmt::format("note: --config {}: tessera {} has no {}; left out\n",
                       shown(typed_.value_of("--config")), command_, fmt::join(left_out_, ", "));
  }

  [[nodiscard]] Settings settings() const {
    Settings settings = defaults_of_train();
    settings.effective.emplace_back("the command", command_);
    for (const OptionRow* const one : rows_) {
      const OptionRow& row = *one;
      const auto configured = from_config_.find(one);
      const bool from_file = configured != from_config_.end();
      const bool typed = typed_.has(row.name) || from_file;
      const std::string text = !typed              ? std::string{row.preset}
                               : row.value.empty() ? std::string{}
                               : from_file         ? configured->second.text
                                                   : typed_.value_of(row.name);
      if (typed) { settings.given.push_back(row.name); }
      if (typed && (row.preset.empty() || text != row.preset)) {
        settings.changed.push_back(row.name);
      }
      if (from_file) {
        in_file(configured->second, [&] { apply(row, text, settings); });
      } else if (typed || !row.preset.empty()) {
        apply(row, text, settings);
      }
      settings.effective.emplace_back(row.name, typed && row.value.empty() ? "given" : text);
    }
    return settings;
  }

  std::string command_;
  std::vector<const OptionRow*> rows_;  // that the command takes
  Arguments typed_;
  std::map<const OptionRow*, ConfigEntry> from_config_;
  std::vector<std::string> left_out_;  // of the file: options of other commands
};

}  // namespace

Request parse_command_line(std::span<const char* const> arguments) {
  if (arguments.empty()) { throw ConfigError("no command given; see tessera --help"); }
  const std::string first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") { return {"", {}, usage(), ""}; }
  if (first == "--version") { return {"", {}, "tessera " TESSERA_VERSION "\n", ""}; }
  return Parser{checked_command(first)}.parse(arguments.subspan(1));
}

void write_config(const Request& request) {
  const std::string& path = request.settings.write_config;
  require_writable("--write-config", path);
  if (std::filesystem::is_regular_file(path) &&
      !is_config_text(read_input("--write-config", path))) {
    throw ConfigError(fmt::format(
        "--write-config: {} exists, and is no file of options; give another path", shown(path)));
  }
  write_output(path, config_text(request.command, request.settings));
  tell(fmt::format("wrote {}; run it with tessera {} --config {}\n", path, request.command, path));
}

}  // namespace tessera::tools
