#include "tools/train/resume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/option_values.hpp"
#include "tools/train/run_values.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kPart = ".part-";
constexpr std::string_view kManifest = "manifest.json";

/// Maps "step-00000012.part-1" in any folder to "step-00000012" there; other paths are unchanged.
fs::path step_of_part(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.parent_path() / name.substr(0, name.find(kPart));
}

/// The step folders in a run's folder, whole or not, ascending. A step that exists in parts is
/// listed under the name of the whole.
std::vector<fs::path> steps_in(const fs::path& folder) {
  std::set<fs::path> steps;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator{folder, failed}) {
    const fs::path step = step_of_part(entry.path());
    if (entry.is_directory(failed) && step_of(step)) { steps.insert(step); }
  }
  std::vector<fs::path> sorted{steps.begin(), steps.end()};
  std::ranges::sort(sorted, {}, [](const fs::path& path) { return step_of(path); });
  return sorted;
}

/// Whether `path` is a checkpoint, whole or in parts side by side.
bool is_checkpoint(const fs::path& path) {
  if (fs::is_regular_file(path / kManifest)) { return true; }
  const fs::path step = step_of_part(path);
  if (!step_of(step) || fs::is_directory(step)) { return false; }
  const std::vector<fs::path> steps = steps_in(step.has_parent_path() ? step.parent_path() : ".");
  return std::ranges::any_of(
      steps, [&](const fs::path& found) { return found.filename() == step.filename(); });
}

/// Whether the checkpoint at `path` is in the run's folder `folder`.
bool is_in_run(const fs::path& folder, const fs::path& path) {
  std::error_code failed;
  return fs::equivalent(folder, fs::absolute(path).parent_path(), failed);
}

/// What a resume chooses in the run's folder, with messages.
Resume resume_of(const NewestCheckpoint& newest, const std::string& option) {
  Resume resume{.path = newest.path, .step = newest.step, .damaged = newest.damaged_paths};
  for (const std::string& damaged : newest.damaged) {
    resume.messages.push_back(fmt::format("warning: {}: {}\n", option, damaged));
  }
  for (const std::string& incomplete : newest.incomplete) {
    resume.messages.push_back(fmt::format(
        "warning: {}: a step is passed over, as its missing parts are on no machine: {}\n", option,
        incomplete));
  }
  return resume;
}

/// The newest whole checkpoint of the run in `folder`.
Resume newest_in(const Settings& settings, const fs::path& folder,
                 const std::optional<SeenParts>& seen) {
  const std::string option = settings.resume ? "--resume" : "--resume-from";
  if (!fs::is_directory(folder) || (settings.resume && steps_in(folder).empty())) {
    throw ConfigError(
        fmt::format("{}: {} holds no checkpoint; leave {} out to begin with step 1, or name the "
                    "folder of the run",
                    option, folder.string(), option));
  }
  const NewestCheckpoint newest = [&] {
    try {
      return newest_checkpoint(folder, NewestOptions{.seen = seen ? &*seen : nullptr});
    } catch (const FormatError&) { throw; } catch (const Error& error) {
      throw ConfigError(fmt::format("{}: {}; leave {} out to begin with step 1 in another folder",
                                    option, error.what(), option));
    }
  }();
  Resume resume = resume_of(newest, option);
  resume.seen = seen;
  return resume;
}

Resume named_by(const Settings& settings, const std::optional<SeenParts>& seen) {
  if (settings.resume) { return newest_in(settings, settings.checkpoint, seen); }
  const fs::path path = settings.resume_from;
  if (!is_checkpoint(path)) { return newest_in(settings, path, seen); }
  return {.path = path, .step = summary_of(path).step};
}

/// "windows 36 to 47 of epoch 0".
std::string windows_from(const DataPosition& next) {
  return fmt::format("windows {} to {} of epoch {}", next.windows,
                     next.windows + next.global_batch - 1, next.epoch);
}

void find_position(const Job& job, const RunValues& saved, bool other_data, Resume& resume) {
  const DataPosition position = position_in(saved, resume.path.string());
  if (other_data) {
    resume.messages.push_back(
        fmt::format("note: the data differ from those of {}; training starts at their beginning\n",
                    resume.path.string()));
    return;
  }
  resume.data_steps = data_steps_before(job, position, resume.path.string());
  const DataPosition next = position_after(job, resume.data_steps);
  if (next.global_batch == position.global_batch) { return; }
  resume.messages.push_back(
      fmt::format("note: a step now takes {} windows instead of {}; the next step takes {}, the "
                  "first whole batch after the {} already used\n",
                  next.global_batch, position.global_batch, windows_from(next), position.windows));
}

/// PATH.damaged, PATH.damaged-2 ...
fs::path free_name_after(const fs::path& path) {
  const std::string first = path.string() + ".damaged";
  fs::path name = first;
  std::error_code failed;
  for (int i = 2; fs::exists(fs::symlink_status(name, failed)); ++i) {
    name = fmt::format("{}-{}", first, i);
  }
  return name;
}

/// The folders of `steps`; for a step that exists in parts, its parts.
std::vector<fs::path> folders_of(const std::vector<fs::path>& steps) {
  std::vector<fs::path> folders;
  for (const fs::path& step : steps) {
    std::error_code failed;
    if (fs::exists(fs::symlink_status(step, failed))) {
      folders.push_back(step);
      continue;
    }
    for (const auto& entry : fs::directory_iterator{step.parent_path(), failed}) {
      if (entry.path() != step && step_of_part(entry.path()) == step) {
        folders.push_back(entry.path());
      }
    }
  }
  return folders;
}

}  // namespace

std::optional<std::int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const bool digits = name.size() > kStep.size() && name.starts_with(kStep) &&
                      name.find_first_not_of("0123456789", kStep.size()) == std::string::npos;
  if (!digits) { return {}; }
  try {
    const std::int64_t step = parse_whole(std::string_view{name}.substr(kStep.size()), 0);
    if (name == fmt::format("{}{:08}", kStep, step)) { return step; }
  } catch (const ConfigError&) { return {}; }
  return {};
}

namespace {

/// Adds to `resume` the differences from the run that wrote the checkpoint, and the position in the
/// data.
Resume completed(const Job& job, Resume resume) {
  const RunValues saved = summary_of(resume.path).values;
  const std::string path = resume.path.string();
  (void)position_in(saved, path);  // first: it finds out whether another program has written it
  const Changes changes = changes_since(job, saved, path);
  for (const std::string& change : changes.options) {
    resume.messages.push_back(fmt::format("note: {}\n", change));
  }
  find_position(job, saved, changes.other_data, resume);
  return resume;
}

}  // namespace

fs::path resumed_run(const Settings& settings) {
  return settings.resume ? settings.checkpoint : settings.resume_from;
}

Resume find_resume(const Job& job, const std::optional<SeenParts>& seen) {
  return completed(job, named_by(job.settings, seen));
}

Resume find_older(const Job& job, const std::string& damage) {
  const Resume& former = *job.resume;
  const NewestOptions options{.before = former.step, .seen = former.seen ? &*former.seen : nullptr};
  const NewestCheckpoint newest = [&] {
    try {
      return newest_checkpoint(job.settings.checkpoint, options);
    } catch (const Error& error) {
      throw FormatError(
          fmt::format("--resume: {}; {} has no earlier checkpoint that is whole ({}); begin a new "
                      "run in another folder",
                      damage, job.settings.checkpoint, error.what()));
    }
  }();
  Resume older = resume_of(newest, "--resume");
  older.seen = former.seen;
  older.messages.insert(older.messages.begin(), fmt::format("warning: --resume: {}\n", damage));
  older.damaged.insert(older.damaged.begin(), former.path);
  older.damaged.insert(older.damaged.begin(), former.damaged.begin(), former.damaged.end());
  return completed(job, older);
}

bool has_steps(const fs::path& folder) {
  return !steps_in(folder).empty();
}

void refuse_other_run(const Job& job) {
  const Settings& settings = job.settings;
  if (settings.checkpoint.empty() || settings.resume) { return; }
  const std::vector<fs::path> steps = steps_in(settings.checkpoint);
  if (steps.empty()) { return; }
  std::error_code failed;
  const bool goes_on = job.resume && (job.resume->path == steps.back() ||
                                      fs::equivalent(job.resume->path, steps.back(), failed));
  if (goes_on) { return; }
  const std::string newest = steps.back().filename().string();
  if (!job.resume) {
    throw ConfigError(
        fmt::format("--checkpoint: {} holds checkpoints of an earlier run, the newest {}; give "
                    "--resume to continue it, or another folder",
                    settings.checkpoint, newest));
  }
  if (is_in_run(settings.checkpoint, job.resume->path)) {
    throw ConfigError(
        fmt::format("--checkpoint: {} holds a later checkpoint of the run that --resume-from "
                    "continues, {}, and "
                    "not only {}; give --resume to continue from the newest, or another folder",
                    settings.checkpoint, newest, job.resume->path.filename().string()));
  }
  throw ConfigError(
      fmt::format("--checkpoint: {} already holds checkpoints of another run, the newest {}; give "
                  "another folder",
                  settings.checkpoint, newest));
}

std::vector<std::string> set_damaged_aside(const Job& job) {
  std::vector<std::string> told;
  if (!job.settings.resume) { return told; }
  for (const fs::path& path : folders_of(job.resume->damaged)) {
    std::error_code failed;
    if (!fs::is_directory(fs::symlink_status(path, failed))) { continue; }
    const fs::path aside = free_name_after(path);
    fs::rename(path, aside, failed);
    told.push_back(failed ? fmt::format("warning: cannot rename {}: {}; remove it\n", path.string(),
                                        failed.message())
                          : fmt::format("note: {} is now {}\n", path.string(), aside.string()));
  }
  return told;
}

}  // namespace tessera::tools
