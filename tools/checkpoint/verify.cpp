#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

// The newest checkpoint of a run, even if it is not whole: verify must find damage.
fs::path checkpoint_to_verify(const fs::path& path) {
  if (folder_kind(path) == FolderKind::checkpoint) { return path; }
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    throw ConfigError(fmt::format(
        "{} is a file; give the folder of a checkpoint, such as DIR/step-00000012, or of a run",
        path.string()));
  }
  if (!fs::is_directory(path, ignored)) { return path; }
  fs::path newest = path;
  for (const CheckpointFolder& found : checkpoints_in(path)) {
    if (!found.part) { newest = found.path; }
  }
  return newest;
}

std::vector<Verdict> verdicts_on(const CheckpointReader& reader) {
  std::uint64_t bytes = 0;
  for (const ManifestTensor& tensor : reader.manifest().tensors) { bytes += tensor.bytes; }
  ByteProgress progress{stdout, "verify ", bytes};
  std::vector<Verdict> verdicts;
  for (const Content content : kContents) {
    Verdict verdict = reader.verdict_on(content, [&](std::uint64_t more) { progress.add(more); });
    if (verdict.tensors > 0) { verdicts.push_back(std::move(verdict)); }
  }
  return verdicts;
}

void print(const Verdict& verdict) {
  fmt::print("  {:<16} {}\n", to_string(verdict.content),
             verdict.damage.empty()
                 ? fmt::format("whole ({} tensor{}, {})", verdict.tensors,
                               verdict.tensors == 1 ? "" : "s", format_bytes(verdict.bytes))
                 : "damaged");
}

bool is_whole(const Verdict& verdict) {
  return verdict.damage.empty();
}

/// What a damaged checkpoint is still good for.
std::string left_of(const std::vector<Verdict>& verdicts) {
  const bool weights = std::ranges::any_of(verdicts, [](const Verdict& verdict) {
    return verdict.content == Content::weights && is_whole(verdict);
  });
  return weights ? "; its weights are whole: tessera checkpoint export and --init take them" : "";
}

void require_whole(const std::vector<Verdict>& verdicts) {
  const auto damaged = std::ranges::find_if_not(verdicts, is_whole);
  if (damaged == verdicts.end()) { return; }
  throw FormatError(fmt::format("{}{}", damaged->damage, left_of(verdicts)));
}

}  // namespace

void verify_checkpoint(const CheckpointSettings& settings) {
  const fs::path path = settings.paths.front();
  if (folder_kind(path) == FolderKind::part) {
    verify_part(path);
    fmt::print("{}: the part is whole, all checksums agree\n", path.string());
    return;
  }
  const fs::path folder = checkpoint_to_verify(path);
  const CheckpointReader reader{folder, {}};
  const std::vector<Verdict> verdicts = verdicts_on(reader);
  std::uint64_t bytes = 0;
  for (const Verdict& verdict : verdicts) {
    print(verdict);
    bytes += verdict.bytes;
  }
  require_whole(verdicts);
  fmt::print("{}: whole, all checksums agree ({} tensors, {})\n", folder.string(),
             reader.manifest().tensors.size(), format_bytes(bytes));
}

}  // namespace tessera::tools
