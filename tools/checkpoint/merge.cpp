#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "tessera/checkpoint/folders.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {

void merge_checkpoints(const CheckpointSettings& settings) {
  const PartsOfSave parts = newest_parts({settings.paths.begin(), settings.paths.end()});
  for (const std::string& newer : parts.passed_over) { tell(fmt::format("warning: {}\n", newer)); }
  std::filesystem::path joined;
  {
    ByteProgress progress{stdout, "merge ", parts.bytes};
    joined = merge_parts(parts, settings.to, [&](std::uint64_t more) { progress.add(more); });
  }
  fmt::print("{} parts of step {} joined to {}, all checksums agree\n", parts.folders.size(),
             parts.step, joined.string());
}

}  // namespace tessera::tools
