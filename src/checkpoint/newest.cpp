#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/joined_parts.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

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
  if (checkpoint::is_file(folder / checkpoint::kManifestName)) {
    throw ConfigError(
        fmt::format("{} is a single checkpoint; give the folder that contains it ({})",
                    folder.string(), fs::absolute(folder).parent_path().string()));
  }
}

/// Describes a folder without a whole checkpoint.
std::string found_in(const fs::path& folder) {
  std::vector<std::string> unfinished;
  for (const std::string& name : checkpoint::names_in(folder)) {
    if (checkpoint::is_hidden(name, checkpoint::kStepPrefix, checkpoint::kPartialEnd)) {
      unfinished.push_back(name);
    }
  }
  if (!unfinished.empty()) {
    return fmt::format("it only has leftovers of killed saves ({}); begin a new run",
                       fmt::join(unfinished, ", "));
  }
  return "it has none; give the folder of a run that has saved one, or begin a new run";
}

/// The folders of steps before `before`, ascending. A step with parts only is listed under the
/// folder name it would have, even if the parts are on other machines.
std::map<std::int64_t, std::vector<fs::path>> steps_of(const fs::path& folder,
                                                       const NewestOptions& options) {
  std::map<std::int64_t, std::vector<fs::path>> steps;
  for (const checkpoint::StepFolder& step :
       checkpoint::steps_in(folder, checkpoint::StepKind::whole)) {
    steps[step.step].push_back(step.path_in(folder));
  }
  const auto add = [&](std::int64_t step) {
    steps.try_emplace(step, 1, folder / checkpoint::step_name(step));
  };
  for (const checkpoint::StepFolder& part :
       checkpoint::steps_in(folder, checkpoint::StepKind::part)) {
    add(part.step);
  }
  if (options.seen != nullptr) {
    for (const SeenParts::Part& part : options.seen->all) { add(part.step); }
  }
  steps.erase(steps.lower_bound(options.before), steps.end());
  return steps;
}

bool is_seen(std::int64_t step, const SeenParts& seen) {
  return std::ranges::any_of(seen.all,
                             [&](const SeenParts::Part& part) { return part.step == step; });
}

/// The ranks that see the parts of `step`, if some save of it has all of them; else empty.
std::string owners_of(std::int64_t step, const SeenParts& seen) {
  std::map<std::string, std::map<int, int>> saves;  // the first rank with each part
  for (const SeenParts::Part& part : seen.all) {
    if (part.step != step) { continue; }
    auto& owners = saves[part.save];
    owners.try_emplace(part.part, part.rank);
    if (std::ssize(owners) < part.parts) { continue; }
    std::vector<std::string> texts;
    for (const auto& [number, rank] : owners) {
      texts.push_back(fmt::format("part {} is on rank {}", number, rank));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }
  return {};
}

/// Whether as many machines have looked for parts of `step` as any save of it has.
bool all_have_looked(std::int64_t step, const SeenParts& seen) {
  return std::ranges::all_of(seen.all, [&](const SeenParts::Part& part) {
    return part.step != step || part.parts <= seen.machines;
  });
}

/// Throws unless parts of `step` that this folder lacks exist on no machine.
void require_nowhere(const fs::path& folder, std::int64_t step, const std::string& missing,
                     const SeenParts* seen) {
  const std::string where =
      fmt::format("the newest checkpoint in the folder {} is of step {}, and incomplete there: {}",
                  folder.string(), step, missing);
  const std::string owners = seen == nullptr ? "" : owners_of(step, *seen);
  if (!owners.empty()) {
    throw ConfigError(fmt::format(
        "{} ({}); copy the parts of all machines to that folder on each machine", where, owners));
  }
  if (seen != nullptr && all_have_looked(step, *seen)) { return; }
  throw ConfigError(
      fmt::format("{}; copy the missing parts from the other machines, or join all parts (tessera "
                  "checkpoint merge); if the save of step {} was killed before they were written, "
                  "remove its parts, or name an earlier checkpoint",
                  where, step));
}

/// Throws for a folder of checkpoints without a whole one.
[[noreturn]] void refuse_all(const fs::path& folder, const NewestCheckpoint& newest) {
  if (!newest.damaged.empty()) {
    throw FormatError(
        fmt::format("no whole checkpoint in the folder {}: each one is damaged; restore a copy, or "
                    "begin a new run in another folder ({})",
                    folder.string(), fmt::join(newest.damaged, "; ")));
  }
  if (!newest.incomplete.empty()) {
    throw ConfigError(
        fmt::format("no checkpoint in the folder {}: it has parts, each of one machine, but no "
                    "step is complete; copy the parts of all machines there, or join them (tessera "
                    "checkpoint merge) ({})",
                    folder.string(), fmt::join(newest.incomplete, "; ")));
  }
  throw ConfigError(
      fmt::format("no checkpoint in the folder {}: {}", folder.string(), found_in(folder)));
}

/// A checkpoint that was looked at.
struct Finding {
  enum class Kind : std::uint8_t { whole, damaged, incomplete, removed };
  Kind kind = Kind::whole;
  std::string text;  ///< its fault
};

bool has_parts_of(const fs::path& folder, std::int64_t step) {
  return std::ranges::any_of(checkpoint::steps_in(folder, checkpoint::StepKind::part),
                             [&](const checkpoint::StepFolder& part) { return part.step == step; });
}

/// `path`: one of steps_of(folder).
Finding look_at(const fs::path& folder, std::int64_t step, const fs::path& path,
                const NewestOptions& options) {
  using Kind = Finding::Kind;
  try {
    (void)checkpoint::open_checkpoint(path, options.what);
    return {};
  } catch (const checkpoint::IncompleteParts& error) {
    return {Kind::incomplete, error.what()};
  } catch (const Error& error) {
    if (checkpoint::name_is_taken(path) || has_parts_of(folder, step)) {
      return {Kind::damaged, error.what()};
    }
    if (options.seen != nullptr && is_seen(step, *options.seen)) {
      return {Kind::incomplete, fmt::format("step {} has no part there", step)};
    }
    return {Kind::removed, error.what()};
  }
}

/// One look at all checkpoints in the folder, the newest first, until one is whole.
struct Look {
  NewestCheckpoint newest;
  bool found = false;
  bool stale = false;  ///< some were removed since the folder was listed
};

void add(Look& look, const fs::path& folder, Finding finding, const SeenParts* seen) {
  NewestCheckpoint& newest = look.newest;
  switch (finding.kind) {
    case Finding::Kind::whole:
      look.found = true;
      return;
    case Finding::Kind::removed:
      look.stale = true;
      return;
    case Finding::Kind::incomplete:
      require_nowhere(folder, newest.step, finding.text, seen);
      newest.incomplete.push_back(std::move(finding.text));
      return;
    case Finding::Kind::damaged:
      newest.damaged.push_back(std::move(finding.text));
      newest.damaged_paths.push_back(newest.path);
  }
}

Look look_into(const fs::path& folder, const NewestOptions& options) {
  Look look;
  const auto steps = steps_of(folder, options);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    look.newest.step = step->first;
    for (auto path = step->second.rbegin(); path != step->second.rend(); ++path) {
      look.newest.path = *path;
      add(look, folder, look_at(folder, step->first, *path, options), options.seen);
      if (look.found) { return look; }
    }
  }
  return look;
}

}  // namespace

NewestCheckpoint newest_checkpoint(const fs::path& folder, const NewestOptions& options) {
  constexpr int kMostLooks = 8;  // a run may remove what was listed
  refuse_other_than_a_folder(folder);
  Look look = look_into(folder, options);
  for (int looks = 1; look.stale && !look.found && looks < kMostLooks; ++looks) {
    look = look_into(folder, options);
  }
  if (!look.found) { refuse_all(folder, look.newest); }
  return std::move(look.newest);
}

NewestCheckpoint newest_checkpoint(const fs::path& folder, LoadOptions::What what) {
  return newest_checkpoint(folder, NewestOptions{.what = what});
}

}  // namespace tessera
