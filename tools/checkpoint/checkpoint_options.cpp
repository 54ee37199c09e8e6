#include "tools/checkpoint/checkpoint_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tools/common/output_file.hpp"
#include "tools/options/action_options.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

struct CheckpointAction {
  std::string name;
  std::string paths;  ///< as help shows its arguments
  std::size_t least_paths = 1;
  std::size_t most_paths = 1;
  std::string summary;
};

const std::vector<CheckpointAction>& actions() {
  static const std::vector<CheckpointAction> all = {
      {"list", "DIR", 1, 1, "Lists the checkpoints of a run: steps, dates, sizes, and damage."},
      {"inspect", "PATH", 1, 1, "Shows what a checkpoint holds: tensors, counters, values."},
      {"verify", "PATH", 1, 1, "Reads all of a checkpoint and compares its checksums."},
      {"diff", "A B", 2, 2,
       "Compares two checkpoints. The status is 0 if they are the same, 1 if "
       "not."},
      {"export", "PATH", 1, 1, "Writes the weights of a checkpoint for other tools (safetensors)."},
      {"merge", "DIR...", 1, 100'000,
       "Joins the parts that machines without a shared file system "
       "have saved."},
  };
  return all;
}

using CheckpointOption = ActionOption<CheckpointSettings>;

std::string dtype_named(const std::string& text) {
  if (text == "fp32") { return "F32"; }
  if (text == "bf16") { return "BF16"; }
  if (text == "fp16") { return "F16"; }
  throw ConfigError(fmt::format("'{}' is no dtype; use fp32, bf16 or fp16", text));
}

std::string given_path(const std::string& text) {
  if (text.empty()) { throw ConfigError("is empty; give a path"); }
  return text;
}

const std::vector<CheckpointOption>& action_options() {
  static const std::vector<CheckpointOption> all = {
      {"--json", "FILE", "", "write the whole output as JSON to this file", "inspect",
       [](CheckpointSettings& s, const std::string& text) { s.json = given_path(text); }},
      {"--to", "PATH", "",
       "where to write the weights: a file that ends in .safetensors, or a folder for "
       "model.safetensors",
       "export", [](CheckpointSettings& s, const std::string& text) { s.to = given_path(text); }},
      {"--hf", "DIR", "",
       "write the model as transformers reads it: a new folder with config.json and "
       "model.safetensors",
       "export", [](CheckpointSettings& s, const std::string& text) { s.hub = given_path(text); }},
      {"--to", "DIR", "", "the folder of the run that gets the whole checkpoint", "merge",
       [](CheckpointSettings& s, const std::string& text) { s.to = given_path(text); }},
      {"--dtype", "D", "", "fp32, bf16 or fp16 (default: as they are)", "export",
       [](CheckpointSettings& s, const std::string& text) { s.dtype = dtype_named(text); }},
      {"--allow-infinities", "", "",
       "write finite values beyond the range of --dtype as infinities, instead of refusing them",
       "export", [](CheckpointSettings& s, const std::string&) { s.allows_infinities = true; }},
      {"--masters", "", "", "write the fp32 master weights instead of the rounded ones", "export",
       [](CheckpointSettings& s, const std::string&) { s.masters = true; }},
      {"--shard-size", "SIZE", "", "most bytes of tensors in a file of a folder (default 5GB)",
       "export",
       [](CheckpointSettings& s, const std::string& text) {
         s.shard_bytes = parse_bytes(text);
         if (s.shard_bytes == 0) { throw ConfigError("is 0; give a size such as 5GB"); }
       }},
  };
  return all;
}

std::string checkpoint_usage() {
  std::string text =
      "Lists, verifies, compares, exports and merges checkpoints.\n\nusage: tessera checkpoint "
      "ACTION PATH... [options]\n\n";
  for (const CheckpointAction& action : actions()) {
    text += fmt::format("  {:<15} {}\n", fmt::format("{} {}", action.name, action.paths),
                        action.summary);
  }
  return text +
         "\nPATH is the folder of a step, such as DIR/step-00000012, or the folder DIR of a run, "
         "which\nmeans its newest checkpoint.\n\ntessera checkpoint ACTION --help lists the "
         "options.\n";
}

std::string command_of(const CheckpointAction& action) {
  return "tessera checkpoint " + action.name;
}

const CheckpointAction& action_named(const std::string& name) {
  const auto& all = actions();
  const auto found = std::ranges::find(all, name, &CheckpointAction::name);
  if (found != all.end()) { return *found; }
  std::vector<std::string> names;
  for (const CheckpointAction& action : all) { names.push_back(action.name); }
  refuse_action("tessera checkpoint", names, name);
}

void check_paths(const CheckpointAction& action, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.starts_with("-")) {
      refuse_option(command_of(action), options_of(action_options(), action.name), path);
    }
    if (path.empty()) {
      throw ConfigError(fmt::format("tessera checkpoint {}: a path is empty", action.name));
    }
  }
  if (paths.size() >= action.least_paths && paths.size() <= action.most_paths) { return; }
  throw ConfigError(fmt::format("tessera checkpoint {} takes {}, and {} {} given", action.name,
                                action.paths, paths.size(), paths.size() == 1 ? "is" : "are"));
}

// A file written into a checkpoint could overwrite the checkpoint's own.
void require_no_checkpoint(std::string_view option, const fs::path& folder) {
  if (folder_kind(folder) == FolderKind::other) { return; }
  throw ConfigError(
      fmt::format("{}: {} is a checkpoint, which must not change; name another folder", option,
                  folder.string()));
}

void check_hub_output(const CheckpointSettings& settings) {
  const auto refuse = [](bool given, std::string_view option) {
    if (!given) { return; }
    throw ConfigError(fmt::format("--hf and {} cannot be combined; leave one of them out", option));
  };
  refuse(!settings.to.empty(), "--to");
  refuse(settings.masters, "--masters");
  refuse(settings.allows_infinities, "--allow-infinities");
  require_no_checkpoint("--hf", settings.hub);
}

void check_outputs(const CheckpointSettings& settings) {
  if (!settings.json.empty()) {
    require_no_checkpoint("--json", fs::path{settings.json}.parent_path());
    require_writable("--json", settings.json);
  }
  if (!settings.hub.empty()) { return check_hub_output(settings); }
  const bool needs_to = settings.what == "export" || settings.what == "merge";
  if (needs_to && settings.to.empty()) {
    throw ConfigError(fmt::format("tessera checkpoint {} needs --to{}", settings.what,
                                  settings.what == "export" ? ", or --hf" : ""));
  }
  if (settings.allows_infinities && settings.dtype.empty()) {
    throw ConfigError("--allow-infinities has no effect without --dtype");
  }
  const bool to_file = settings.what == "export" && settings.to.ends_with(".safetensors");
  if (needs_to && !to_file) { require_no_checkpoint("--to", settings.to); }
  if (to_file) {
    require_no_checkpoint("--to", fs::path{settings.to}.parent_path());
    require_file("--to", settings.to);
    if (settings.shard_bytes != 0) {
      throw ConfigError(
          "--shard-size has no effect on one file; give a folder as --to, or leave it out");
    }
  }
}

}  // namespace

CheckpointSettings parse_checkpoint(std::span<const char* const> arguments) {
  CheckpointSettings settings;
  if (arguments.empty()) {
    throw ConfigError("tessera checkpoint needs an action; see tessera checkpoint --help");
  }
  const std::string first = arguments.front();
  if (first == "--help" || first == "-h") {
    settings.text = checkpoint_usage();
    return settings;
  }
  const CheckpointAction& action = action_named(first);

  const auto options = options_of(action_options(), action.name);
  const Arguments typed =
      split_arguments(command_of(action), names_of(options), arguments.subspan(1));
  if (typed.help) {
    settings.text = fmt::format("{}\n\nusage: {} {} [options]\n\n{}", action.summary,
                                command_of(action), action.paths, help_on(options));
    return settings;
  }
  settings.what = action.name;
  settings.paths = typed.rest;
  check_paths(action, settings.paths);
  apply_options(action_options(), action.name, typed, settings);
  check_outputs(settings);
  return settings;
}

}  // namespace tessera::tools
