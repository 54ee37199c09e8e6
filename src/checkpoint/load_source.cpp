#include "checkpoint/load_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/kept_path.hpp"
#include "checkpoint/file_check.hpp"
#include "checkpoint/joined_parts.hpp"
#include "checkpoint/rank_reads.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/step_folders.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::checkpoint {
namespace {

class CheckpointSource final : public LoadSource {
 public:
  explicit CheckpointSource(const std::filesystem::path& folder) : reader_{folder, {}} {}

  [[nodiscard]] const Manifest& manifest() const noexcept override { return reader_.manifest(); }
  void check_files(const Contents& contents) override { reader_.check_files(contents); }
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) override {
    RankReads{reader_}.read(file, first, out);
  }

 private:
  CheckpointReader reader_;
};

/// The parts of one checkpoint, in folders beside each other.
class PartsSource final : public LoadSource {
 public:
  explicit PartsSource(std::vector<FoundPart> parts)
      : parts_{std::move(parts)}, manifest_{joined_manifest(parts_)} {}

  [[nodiscard]] const Manifest& manifest() const noexcept override { return manifest_; }
  void check_files(const Contents& contents) override {
    for (const auto& [name, bytes] : manifest_.files) {
      if (serves_any(manifest_, name, contents)) { check_file_of_parts(name); }
    }
  }
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) override {
    const std::uint64_t end = first + out.size();
    for (const FoundPart& part : parts_) {
      for (const PartRange& range : part.part.ranges) {
        const std::uint64_t from = std::max(first, range.first_byte);
        const std::uint64_t to = std::min(end, range.first_byte + range.bytes);
        if (range.file != file || from >= to) { continue; }
        files_.at(part.folder / file)->read_at(from, out.subspan(from - first, to - from));
      }
    }
  }

 private:
  /// Each part has a file of the whole size, and the first byte's part the header.
  void check_file_of_parts(const std::string& name) {
    for (const FoundPart& part : parts_) {
      require_size(*files_.at(part.folder / name), manifest_.files.at(name));
    }
    const auto first = std::ranges::find_if(parts_, [&](const FoundPart& part) {
      return std::ranges::any_of(part.part.ranges, [&](const PartRange& range) {
        return range.file == name && range.first_byte == 0;
      });
    });
    const FoundPart& named = first == parts_.end() ? parts_.front() : *first;
    check_file(manifest_, name,
               {.path = (named.folder / name).string(),
                .bytes = manifest_.files.at(name),
                .read = [&](std::uint64_t at, auto out) { read(name, at, out); }});
  }

  std::vector<FoundPart> parts_;
  Manifest manifest_;
  ReadableFiles files_;
};

/// Weight files written by other programs.
class WeightsSource final : public LoadSource {
 public:
  explicit WeightsSource(const std::vector<std::filesystem::path>& files) {
    for (const std::filesystem::path& path : files) { open(path); }
  }

  [[nodiscard]] const Manifest& manifest() const noexcept override { return manifest_; }
  void check_files(const Contents& /*contents*/) override {}  // SafetensorsReader has done so
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) override {
    files_.at(file)->read_at(first, out);
  }

 private:
  void open(const std::filesystem::path& path) {
    const SafetensorsReader reader{path};
    manifest_.files[path.string()] = files_.at(path)->bytes();
    for (const auto& [name, entry] : reader.entries()) {
      const auto elems = static_cast<std::uint64_t>(entry.shape.elems());
      manifest_.tensors.push_back({.name = name,
                                   .role = "weight",
                                   .dtype = entry.dtype,
                                   .shape = entry.shape,
                                   .chunk_bytes = elems == 0 ? 1 : entry.bytes / elems,
                                   .file = path.string(),
                                   .first_byte = entry.first_byte,
                                   .bytes = entry.bytes,
                                   .sums = {}});
    }
  }

  Manifest manifest_;
  ReadableFiles files_;
};

/// The files that an index names, each once.
std::vector<std::filesystem::path> files_of_index(const std::filesystem::path& index) {
  std::ifstream file{index, std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (!file) {
    throw FormatError{fmt::format(
        "{}: cannot be read; check that the file exists and its permissions", index.string())};
  }
  std::set<std::string> names;
  for (const auto& [tensor, name] : parse_index(index.string(), text)) { names.insert(name); }
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names) { files.push_back(index.parent_path() / name); }
  return files;
}

/// The weight files of another program at `path`; none if it is a checkpoint.
std::vector<std::filesystem::path> weights_files(const std::filesystem::path& path) {
  if (std::filesystem::is_regular_file(path)) {
    return path.string().ends_with(kIndexEnd) ? files_of_index(path) : std::vector{path};
  }
  // Without its manifest a checkpoint is damaged: nothing would tell whether its weights are whole.
  const bool is_step = parse_step_folder(path.filename().string()).has_value();
  if (is_step || std::filesystem::exists(path / kManifestName)) { return {}; }
  const std::filesystem::path whole = path / "model.safetensors";
  if (std::filesystem::exists(whole)) { return {whole}; }
  const std::filesystem::path index = path / fmt::format("model{}", kIndexEnd);
  return std::filesystem::exists(index) ? files_of_index(index)
                                        : std::vector<std::filesystem::path>{};
}

}  // namespace

std::unique_ptr<LoadSource> open_checkpoint(const std::filesystem::path& path,
                                            LoadOptions::What what) {
  const std::filesystem::path kept = kept_path(path);
  std::vector<FoundPart> parts = parts_of_step(kept);
  std::unique_ptr<LoadSource> source;
  if (parts.empty()) {
    source = std::make_unique<CheckpointSource>(kept);
  } else {
    source = std::make_unique<PartsSource>(std::move(parts));
  }
  const bool weights = what == LoadOptions::What::weights;
  source->check_files(weights ? Contents{Content::weights} : every_content());
  return source;
}

std::unique_ptr<LoadSource> open_load_source(const std::filesystem::path& path,
                                             LoadOptions::What what) {
  if (what == LoadOptions::What::weights) {
    const std::vector<std::filesystem::path> files = weights_files(kept_path(path));
    if (!files.empty()) { return std::make_unique<WeightsSource>(files); }
  }
  return open_checkpoint(path, what);
}

}  // namespace tessera::checkpoint
