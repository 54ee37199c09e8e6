#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "checkpoint/part.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"

namespace tessera::tools {
namespace {

// The newest checkpoint of a run, even if it is not whole: verify must find damage.
std::filesystem::path checkpoint_to_verify(const std::filesystem::path& path) {
  if (is_file(path / kManifestName)) { return path; }
  if (is_file(path)) {
    throw ConfigError(fmt::format(
        "{} is a file; give the folder of a checkpoint, such as DIR/step-00000012, or of a run",
        path.string()));
  }
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const auto steps = is_folder ? steps_in(path, StepKind::whole) : std::vector<StepFolder>{};
  return steps.empty() ? path : steps.back().path_in(path);
}

}  // namespace

void verify_checkpoint(const CheckpointSettings& settings) {
  const std::filesystem::path path = settings.paths.front();
  if (is_file(path / kPartName)) {
    verify_part(path);
    fmt::print("{}: the part is whole, all checksums agree\n", path.string());
    return;
  }
  CheckpointReader reader{checkpoint_to_verify(path)};
  std::uint64_t bytes = 0;
  for (const ManifestTensor& tensor : reader.manifest().tensors) { bytes += tensor.bytes; }
  {
    ByteProgress progress{stdout, "verify ", bytes};
    reader.verify([&](std::uint64_t more) { progress.add(more); });
  }
  fmt::print("{}: whole, all checksums agree ({} tensors, {})\n", reader.folder().string(),
             reader.manifest().tensors.size(), format_bytes(bytes));
}

}  // namespace tessera::tools
