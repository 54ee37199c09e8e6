#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// What is wrong with a checkpoint; empty if its manifest and files agree.
std::string fault_of(const fs::path& path, std::int64_t step) {
  try {
    const CheckpointReader reader{path};
    const std::int64_t found = reader.manifest().step;
    return found == step ? "" : fmt::format("{}: its manifest is step {}'s", path.string(), found);
  } catch (const Error& error) { return error.what(); }
}

void refuse_other_than_a_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status found = fs::status(folder, error);
  if (!fs::exists(found)) {
    throw ConfigError(fmt::format("there is no folder of checkpoints {}: {}", folder.string(),
                                  error ? error.message() : "No such file or directory"));
  }
  if (!fs::is_directory(found)) {
    throw ConfigError(fmt::format("{} is no folder of checkpoints: it is a file", folder.string()));
  }
  if (is_file(folder / kManifestName)) {
    throw ConfigError(fmt::format("{} is one checkpoint; give the folder that it is in ({})",
                                  folder.string(), fs::absolute(folder).parent_path().string()));
  }
}

/// What a folder without a whole checkpoint has.
std::string found_in(const fs::path& folder) {
  std::vector<std::string> unfinished;
  for (const std::string& name : names_in(folder)) {
    if (is_hidden(name, kStepPrefix, kPartialEnd)) { unfinished.push_back(name); }
  }
  if (const auto parts = steps_in(folder, StepKind::part); !parts.empty()) {
    return fmt::format(
        "it has parts of step {} only, each of one machine ({}); join the parts of "
        "all machines first (tessera checkpoint merge)",
        parts.back().step, parts.back().path_in("").string());
  }
  if (!unfinished.empty()) {
    return fmt::format("it has only what saves have left that were killed ({}); begin a new run",
                       fmt::join(unfinished, ", "));
  }
  return "it has none; give the folder of a run that has saved one, or begin a new run";
}

}  // namespace

NewestCheckpoint newest_checkpoint(const fs::path& folder) {
  refuse_other_than_a_folder(folder);
  NewestCheckpoint newest;
  const std::vector<StepFolder> steps = steps_in(folder, StepKind::whole);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    newest.path = step->path_in(folder);
    newest.step = step->step;
    const std::string fault = fault_of(newest.path, newest.step);
    if (fault.empty()) { return newest; }
    newest.damaged.push_back(fault);
    newest.damaged_paths.push_back(newest.path);
  }
  if (newest.damaged.empty()) {
    throw ConfigError(
        fmt::format("no checkpoint in the folder {}: {}", folder.string(), found_in(folder)));
  }
  throw FormatError(
      fmt::format("no whole checkpoint in the folder {}: each one is damaged; bring "
                  "back a copy, or begin a new run in another folder ({})",
                  folder.string(), fmt::join(newest.damaged, "; ")));
}

}  // namespace tessera
