#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "checkpoint/file_system.hpp"
#include "checkpoint/joined_parts.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/step_folders.hpp"
#include "checkpoint/store.hpp"
#include "tessera/base/error.hpp"
#include "tools/checkpoint/byte_progress.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/standard_streams.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kCopiedAtOnce = std::uint64_t{4} << 20;
constexpr std::uint64_t kMostProvenanceBytes = std::uint64_t{1} << 20;

// The folders of parts that `paths` name: `paths` may be parts, or the folders of runs.
std::vector<FoundPart> parts_at(const std::vector<std::string>& paths) {
  std::vector<FoundPart> parts;
  for (const fs::path path : paths) {
    if (kind_of(path) == FolderKind::part) {
      parts.push_back(read_part(path));
      continue;
    }
    std::error_code ignored;
    const bool is_folder = fs::is_directory(path, ignored);
    const auto found = is_folder ? steps_in(path, StepKind::part) : std::vector<StepFolder>{};
    if (found.empty()) {
      throw ConfigError(
          fmt::format("{} holds no parts of checkpoints; give the folder that each "
                      "machine has saved to",
                      path.string()));
    }
    for (const StepFolder& part : found) { parts.push_back(read_part(part.path_in(path))); }
  }
  return parts;
}

// "part 0, 2"
std::string numbers_of(const std::vector<FoundPart>& parts) {
  std::set<int> numbers;
  for (const FoundPart& part : parts) { numbers.insert(part.part.part); }
  return fmt::format("part {}", fmt::join(numbers, ", "));
}

// The parts of the newest complete save; if no save is complete, those of the newest. Reports the
// newer saves that are skipped.
std::vector<FoundPart> newest_save(const std::vector<FoundPart>& parts) {
  std::map<std::pair<std::int64_t, std::string>, std::vector<FoundPart>> saves;
  for (const FoundPart& part : parts) {
    saves[{part.part.manifest.step, part.part.save}].push_back(part);
  }
  const auto is_complete = [](const auto& save) {
    return std::ssize(save.second) >= save.second.front().part.parts;
  };
  const auto complete = std::find_if(saves.rbegin(), saves.rend(), is_complete);
  if (complete == saves.rend()) { return saves.rbegin()->second; }
  for (auto newer = saves.rbegin(); newer != complete; ++newer) {
    tell(
        fmt::format("warning: step {} is passed over: of its {} parts only {} is there; step {} "
                    "is joined\n",
                    newer->first.first, newer->second.front().part.parts, numbers_of(newer->second),
                    complete->first.first));
  }
  return complete->second;
}

void copy_range(const ReadableFile& from, const PartRange& range, WritableFile& to,
                ByteProgress& progress) {
  std::vector<std::byte> buffer(std::min(kCopiedAtOnce, range.bytes));
  for (std::uint64_t done = 0; done < range.bytes;) {
    const std::span piece =
        std::span{buffer}.first(std::min<std::uint64_t>(buffer.size(), range.bytes - done));
    from.read_at(range.first_byte + done, piece);
    to.write_at(range.first_byte + done, piece);
    done += piece.size();
    progress.add(piece.size());
  }
}

void copy_parts(const std::vector<FoundPart>& parts, const Manifest& manifest,
                const fs::path& folder, ByteProgress& progress) {
  for (const auto& [name, bytes] : manifest.files) {
    const std::unique_ptr<WritableFile> to = system_files().open(folder / name, bytes);
    for (const FoundPart& part : parts) {
      const auto& ranges = part.part.ranges;
      const bool has_some = std::any_of(ranges.begin(), ranges.end(),
                                        [&file = name](const auto& r) { return r.file == file; });
      if (!has_some) { continue; }
      const ReadableFile from{part.folder / name};
      for (const PartRange& range : ranges) {
        if (range.file == name) { copy_range(from, range, *to, progress); }
      }
    }
    to->flush();
  }
}

std::string provenance_of(const FoundPart& part) {
  try {
    return read_text(part.folder / kProvenanceName, kMostProvenanceBytes);
  } catch (const FormatError&) { return "{}\n"; }
}

}  // namespace

void merge_checkpoints(const CheckpointSettings& settings) {
  std::vector<FoundPart> parts = newest_save(parts_at(settings.paths));
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.part.part < b.part.part; });
  const Manifest manifest = joined_manifest(parts);
  for (const FoundPart& part : parts) { verify_part(part.folder); }
  std::uint64_t bytes = 0;
  for (const auto& [name, size] : manifest.files) { bytes += size; }

  CheckpointStore store{settings.to, system_files()};
  const fs::path partial = store.begin(manifest.step);
  CheckpointStore::Committed committed;
  try {
    ByteProgress progress{stdout, "merge ", bytes};
    copy_parts(parts, manifest, partial, progress);
    committed = store.commit(partial, manifest, provenance_of(parts.front()));
  } catch (...) {
    store.abandon();
    throw;
  }
  CheckpointReader{committed.folder}.verify();
  fmt::print("{} parts of step {} joined to {}, all checksums agree\n", parts.size(), manifest.step,
             committed.folder.string());
}

}  // namespace tessera::tools
