#include "tools/checkpoint/checkpoint_command.hpp"

#include <fmt/format.h>

#include "checkpoint/manifest.hpp"
#include "checkpoint/part.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {

std::filesystem::path checkpoint_at(const std::string& path) {
  if (is_file(std::filesystem::path{path} / kManifestName)) { return path; }
  if (is_file(std::filesystem::path{path} / kPartName)) {
    throw ConfigError(fmt::format(
        "{} is one machine's part of a checkpoint; join the parts of all machines first "
        "(tessera checkpoint merge)",
        path));
  }
  const NewestCheckpoint newest = newest_checkpoint(path);
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
