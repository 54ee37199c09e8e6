#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The fault of a checkpoint; empty if its manifest and files agree.
std::string fault_of(const fs::path& path, LoadOptions::What what) {
  try {
    (void)open_checkpoint(path, what);
    return {};
  } catch (const Error& error) { return error.what(); }
}

void refuse_other_than_a_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status found = fs::status(folder, error);
  if (!fs::exists(found)) {
    throw ConfigError(fmt::format("the folder of checkpoints {} does not exist: {}",
                                  folder.string(),
                                  error ? error.message() : "No such file or directory"));
  }
  if (!fs::is_directory(found)) {
    throw ConfigError(fmt::format("{} is a file, not a folder of checkpoints", folder.string()));
  }
  if (is_file(folder / kManifestName)) {
    throw ConfigError(
        fmt::format("{} is a single checkpoint; give the folder that contains it ({})",
                    folder.string(), fs::absolute(folder).parent_path().string()));
  }
}

/// Describes a folder without a whole checkpoint.
std::string found_in(const fs::path& folder) {
  std::vector<std::string> unfinished;
  for (const std::string& name : names_in(folder)) {
    if (is_hidden(name, kStepPrefix, kPartialEnd)) { unfinished.push_back(name); }
  }
  if (!unfinished.empty()) {
    return fmt::format("it only has leftovers of killed saves ({}); begin a new run",
                       fmt::join(unfinished, ", "));
  }
  return "it has none; give the folder of a run that has saved one, or begin a new run";
}

/// The folders of steps, ascending. A step with parts only is listed under the folder name it would
/// have.
std::map<std::int64_t, std::vector<fs::path>> steps_of(const fs::path& folder) {
  std::map<std::int64_t, std::vector<fs::path>> steps;
  for (const StepFolder& step : steps_in(folder, StepKind::whole)) {
    steps[step.step].push_back(step.path_in(folder));
  }
  for (const StepFolder& part : steps_in(folder, StepKind::part)) {
    steps.try_emplace(part.step, 1, folder / step_name(part.step));
  }
  return steps;
}

/// Throws for a folder of checkpoints without a whole one.
[[noreturn]] void refuse_damaged(const fs::path& folder, const NewestCheckpoint& newest) {
  const auto is_whole = [](const fs::path& path) { return name_is_taken(path); };
  if (std::ranges::none_of(newest.damaged_paths, is_whole)) {
    throw ConfigError(
        fmt::format("no checkpoint in the folder {}: it has parts, each of one machine, but no "
                    "step is complete; copy the parts of all machines there, or join them (tessera "
                    "checkpoint merge) ({})",
                    folder.string(), fmt::join(newest.damaged, "; ")));
  }
  throw FormatError(
      fmt::format("no whole checkpoint in the folder {}: each one is damaged; restore a copy, or "
                  "begin a new run in another folder ({})",
                  folder.string(), fmt::join(newest.damaged, "; ")));
}

}  // namespace

NewestCheckpoint newest_checkpoint(const fs::path& folder, LoadOptions::What what) {
  refuse_other_than_a_folder(folder);
  NewestCheckpoint newest;
  const auto steps = steps_of(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    newest.step = step->first;
    for (auto path = step->second.rbegin(); path != step->second.rend(); ++path) {
      newest.path = *path;
      const std::string fault = fault_of(newest.path, what);
      if (fault.empty()) { return newest; }
      newest.damaged.push_back(fault);
      newest.damaged_paths.push_back(newest.path);
    }
  }
  if (!newest.damaged.empty()) { refuse_damaged(folder, newest); }
  throw ConfigError(
      fmt::format("no checkpoint in the folder {}: {}", folder.string(), found_in(folder)));
}

}  // namespace tessera
