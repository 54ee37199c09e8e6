#include "tessera/checkpoint/folders.hpp"

#include <fmt/format.h>

#include "checkpoint/manifest.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

FolderKind folder_kind(const std::filesystem::path& folder) {
  if (checkpoint::is_file(folder / checkpoint::kManifestName)) { return FolderKind::checkpoint; }
  return checkpoint::is_part_folder(folder) ? FolderKind::part : FolderKind::other;
}

std::vector<CheckpointFolder> checkpoints_in(const std::filesystem::path& folder) {
  std::vector<CheckpointFolder> all;
  for (const checkpoint::StepKind kind :
       {checkpoint::StepKind::whole, checkpoint::StepKind::part}) {
    for (const checkpoint::StepFolder& step : checkpoint::steps_in(folder, kind)) {
      const std::filesystem::path path = step.path_in(folder);
      all.push_back({path, step.step, step.part, path / checkpoint::claim_of(step.name)});
    }
  }
  return all;
}

WholeCheckpoint whole_checkpoint(const std::filesystem::path& path, LoadOptions::What what) {
  const FolderKind kind = folder_kind(path);
  if (kind == FolderKind::checkpoint) { return {path, {}}; }
  if (kind == FolderKind::part) { throw ConfigError(checkpoint::text_of_part(path)); }
  NewestCheckpoint newest = newest_checkpoint(path, what);
  if (!checkpoint::name_is_taken(newest.path)) {
    throw ConfigError(fmt::format(
        "{} is in parts; join them first (tessera checkpoint merge {} --to DIR), and give DIR",
        newest.path.string(), path.string()));
  }
  return {std::move(newest.path), std::move(newest.damaged)};
}

}  // namespace tessera
