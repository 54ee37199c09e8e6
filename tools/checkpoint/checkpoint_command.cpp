#include "tools/checkpoint/checkpoint_command.hpp"

#include <fmt/format.h>

#include "checkpoint/manifest.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {

FolderKind kind_of(const std::filesystem::path& folder) {
  if (is_file(folder / kManifestName)) { return FolderKind::checkpoint; }
  return is_part_folder(folder) ? FolderKind::part : FolderKind::other;
}

std::filesystem::path checkpoint_at(const std::string& path, LoadOptions::What what) {
  const FolderKind kind = kind_of(path);
  if (kind == FolderKind::checkpoint) { return path; }
  if (kind == FolderKind::part) { throw ConfigError(text_of_part(path)); }
  const NewestCheckpoint newest = newest_checkpoint(path, what);
  if (!name_is_taken(newest.path)) {
    throw ConfigError(fmt::format(
        "{} is in parts; join them first (tessera checkpoint merge {} --to DIR), and give DIR",
        newest.path.string(), path));
  }
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
