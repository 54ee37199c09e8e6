#include "tools/checkpoint/checkpoint_command.hpp"

#include <fmt/format.h>

#include "tessera/checkpoint/folders.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {

std::filesystem::path checkpoint_at(const std::string& path, LoadOptions::What what) {
  const WholeCheckpoint found = whole_checkpoint(path, what);
  for (const std::string& damage : found.damaged) {
    tell(fmt::format("warning: a newer checkpoint is damaged: {}\n", damage));
  }
  return found.path;
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
