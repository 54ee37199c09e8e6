#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/file_system.hpp"
#include "checkpoint/joined_parts.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/step_folders.hpp"
#include "checkpoint/store.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/folders.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Progress = std::function<void(std::uint64_t bytes)>;

constexpr std::uint64_t kCopiedAtOnce = std::uint64_t{4} << 20;

/// The parts that `paths` name: `paths` may be parts, or the folders of runs.
std::vector<checkpoint::FoundPart> parts_at(const std::vector<fs::path>& paths) {
  std::vector<checkpoint::FoundPart> parts;
  for (const fs::path& path : paths) {
    if (checkpoint::is_part_folder(path)) {
      parts.push_back(checkpoint::read_part(path));
      continue;
    }
    std::error_code ignored;
    const bool is_folder = fs::is_directory(path, ignored);
    const auto found = is_folder ? checkpoint::steps_in(path, checkpoint::StepKind::part)
                                 : std::vector<checkpoint::StepFolder>{};
    if (found.empty()) {
      throw ConfigError(
          fmt::format("{} holds no parts of checkpoints; give the folder that each "
                      "machine has saved to",
                      path.string()));
    }
    for (const checkpoint::StepFolder& part : found) {
      parts.push_back(checkpoint::read_part(part.path_in(path)));
    }
  }
  return parts;
}

/// The numbers of `parts`, which may hold copies of a part.
std::set<int> numbers_of(const std::vector<checkpoint::FoundPart>& parts) {
  std::set<int> numbers;
  for (const checkpoint::FoundPart& part : parts) { numbers.insert(part.part.part); }
  return numbers;
}

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const auto& [name, size] : manifest.files) { bytes += size; }
  return bytes;
}

void copy_range(const checkpoint::ReadableFile& from, const checkpoint::PartRange& range,
                checkpoint::WritableFile& to, const Progress& progress) {
  std::vector<std::byte> buffer(std::min(kCopiedAtOnce, range.bytes));
  for (std::uint64_t done = 0; done < range.bytes;) {
    const std::span piece =
        std::span{buffer}.first(std::min<std::uint64_t>(buffer.size(), range.bytes - done));
    from.read_at(range.first_byte + done, piece);
    to.write_at(range.first_byte + done, piece);
    done += piece.size();
    if (progress) { progress(piece.size()); }
  }
}

void copy_parts(const std::vector<checkpoint::FoundPart>& parts, const Manifest& manifest,
                const fs::path& folder, const Progress& progress) {
  for (const auto& [name, bytes] : manifest.files) {
    const std::unique_ptr<checkpoint::WritableFile> to =
        checkpoint::system_files().open(folder / name, bytes);
    for (const checkpoint::FoundPart& part : parts) {
      const auto& ranges = part.part.ranges;
      const bool has_some = std::any_of(ranges.begin(), ranges.end(),
                                        [&file = name](const auto& r) { return r.file == file; });
      if (!has_some) { continue; }
      const checkpoint::ReadableFile from{part.folder / name};
      for (const checkpoint::PartRange& range : ranges) {
        if (range.file == name) { copy_range(from, range, *to, progress); }
      }
    }
    to->flush();
  }
}

std::string provenance_of(const checkpoint::FoundPart& part) {
  try {
    return checkpoint::read_text(part.folder / checkpoint::kProvenanceName,
                                 checkpoint::kMostProvenanceBytes);
  } catch (const FormatError&) { return "{}\n"; }
}

}  // namespace

PartSummary summary_of_part(const fs::path& folder) {
  const checkpoint::CheckpointPart part = checkpoint::read_part(folder).part;
  PartSummary summary{.step = part.manifest.step, .part = part.part, .parts = part.parts};
  for (const checkpoint::PartRange& range : part.ranges) { summary.bytes += range.bytes; }
  return summary;
}

PartsOfSave newest_parts(const std::vector<fs::path>& paths) {
  std::map<std::pair<std::int64_t, std::string>, std::vector<checkpoint::FoundPart>> saves;
  for (checkpoint::FoundPart& part : parts_at(paths)) {
    saves[{part.part.manifest.step, part.part.save}].push_back(std::move(part));
  }
  expects(!saves.empty(), "newest_parts: no paths were given");
  const auto is_complete = [](const auto& save) {
    return std::ssize(numbers_of(save.second)) >= save.second.front().part.parts;
  };
  const auto complete = std::find_if(saves.rbegin(), saves.rend(), is_complete);
  const auto chosen = complete == saves.rend() ? saves.rbegin() : complete;
  PartsOfSave found{.step = chosen->first.first,
                    .bytes = bytes_of(chosen->second.front().part.manifest)};
  for (auto newer = saves.rbegin(); newer != chosen; ++newer) {
    found.passed_over.push_back(
        fmt::format("step {} is passed over: of its {} parts only part {} is there; step {} is "
                    "joined",
                    newer->first.first, newer->second.front().part.parts,
                    fmt::join(numbers_of(newer->second), ", "), found.step));
  }
  std::vector<checkpoint::FoundPart>& parts = chosen->second;
  std::ranges::sort(parts, {}, [](const checkpoint::FoundPart& part) { return part.part.part; });
  for (const checkpoint::FoundPart& part : parts) { found.folders.push_back(part.folder); }
  return found;
}

fs::path merge_parts(const PartsOfSave& save, const fs::path& run, const Progress& progress) {
  std::vector<checkpoint::FoundPart> parts;
  for (const fs::path& folder : save.folders) { parts.push_back(checkpoint::read_part(folder)); }
  const Manifest manifest = checkpoint::joined_manifest(parts);
  for (const checkpoint::FoundPart& part : parts) { verify_part(part.folder); }

  checkpoint::CheckpointStore store{run, checkpoint::system_files()};
  const fs::path partial = store.begin(manifest.step);
  checkpoint::CheckpointStore::Committed committed;
  try {
    copy_parts(parts, manifest, partial, progress);
    committed = store.commit(partial, manifest, provenance_of(parts.front()));
  } catch (...) {
    store.abandon();
    throw;
  }
  CheckpointReader{committed.folder}.verify();
  return committed.folder;
}

}  // namespace tessera
