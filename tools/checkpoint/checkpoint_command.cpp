#include "tools/checkpoint/checkpoint_command.hpp"

#include <fmt/format.h>

#include "checkpoint/manifest.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {

FolderKind kind_of(const std::filesystem::path& folder) {
  if (is_file(folder / kManifestName)) { return FolderKind::checkpoint; }
  if (!is_file(folder / kPartName)) { return FolderKind::other; }
  const bool runs =
      !steps_in(folder, StepKind::whole).empty() || !steps_in(folder, StepKind::part).empty();
  return runs ? FolderKind::other : FolderKind::part;
}

std::filesystem::path checkpoint_at(const std::string& path, LoadOptions::What what) {
  const FolderKind kind = kind_of(path);
  if (kind == FolderKind::checkpoint) { return path; }
  if (kind == FolderKind::part) {
    throw ConfigError(fmt::format(
        "{} is one machine's part of a checkpoint; join the parts of all machines first "
        "(tessera checkpoint merge)",
        path));
  }
  const NewestCheckpoint newest = newest_checkpoint(path, what);
  for (const std::string& damage : newest.damaged) {
    tell(fmt::format("warning: a newer checkpoint is damaged: {}\n", damage));
  }
  return newest.path;
}

void run_checkpoint(std::span<const char* const> arguments) {
  const CheckpointSettings settings = parse_checkpoint(arguments);
  if (settings.what == "list") { return list_checkpoints(settings); }
  if (settings.what == "inspect") { return inspect_checkpoint(settings); }
  if (settings.what == "verify") { return verify_checkpoint(settings); }
  if (settings.what == "diff") { return diff_checkpoints(settings); }
  if (settings.what == "export") { return export_checkpoint(settings); }
  if (settings.what == "merge") { return merge_checkpoints(settings); }
  fmt::print("{}", settings.text);
}

}  // namespace tessera::tools
