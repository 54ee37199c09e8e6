#include "checkpoint/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "checkpoint/checksum.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {
namespace {

constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 28;

Manifest manifest_in(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw FormatError(
        fmt::format("{}: there is no checkpoint here: the folder has no {}; give the folder of a "
                    "step, such as DIR/step-00000012",
                    folder.string(), kManifestName));
  }
  return parse_manifest(path.string(), read_text(path, kMostManifestBytes));
}

// The tensors of each file, in the order of their data.
using TensorsByFile = std::map<std::string_view, std::vector<const ManifestTensor*>>;

TensorsByFile by_file(const Manifest& manifest) {
  TensorsByFile files;
  for (const ManifestTensor& tensor : manifest.tensors) { files[tensor.file].push_back(&tensor); }
  for (auto& [name, tensors] : files) {
    // Empty tensors share their offset with the next one, as in the layout. Their addresses give
    // their order in the manifest.
    std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
      return std::tuple{a->first_byte, a->bytes, dtype_bytes(b->dtype), a} <
             std::tuple{b->first_byte, b->bytes, dtype_bytes(a->dtype), b};
    });
  }
  return files;
}

// Throws for a header that differs from the manifest, with the difference if it can be found.
[[noreturn]] void refuse_header(const ReadableFile& file, const std::string& expected,
                                const std::string& found,
                                const std::vector<const ManifestTensor*>& tensors) {
  const std::string path = file.path().string();
  const SafetensorsEntries entries = parse_header(path, read_header(file), file.bytes());
  for (const ManifestTensor* tensor : tensors) {
    const auto entry = entries.find(tensor->name);
    if (entry == entries.end()) {
      throw FormatError(
          fmt::format("{}: header: tensor '{}' is missing; the file belongs to another checkpoint, "
                      "or is damaged",
                      path, shown(tensor->name)));
    }
    if (entry->second.shape != tensor->shape || entry->second.dtype != tensor->dtype ||
        entry->second.first_byte != tensor->first_byte) {
      throw FormatError(fmt::format(
          "{}: header: tensor '{}' is {} {} at byte {}, but the manifest has {} {} at byte {}; the "
          "file belongs to another checkpoint, or is damaged",
          path, shown(tensor->name), shown(entry->second.dtype), entry->second.shape.to_string(),
          entry->second.first_byte, tensor->dtype, tensor->shape.to_string(), tensor->first_byte));
    }
  }
  const auto at = std::mismatch(expected.begin(), expected.end(), found.begin()).first;
  throw FormatError(
      fmt::format("{}: byte {}: the header differs from the manifest's; the file is damaged, use "
                  "another checkpoint",
                  path, at - expected.begin()));
}

void check_header_of(const ReadableFile& file, const std::vector<const ManifestTensor*>& tensors) {
  std::vector<HeaderTensor> declared;
  for (const ManifestTensor* tensor : tensors) {
    declared.push_back({tensor->name, tensor->dtype, &tensor->shape});
  }
  std::string expected;
  try {
    expected = format_header(declared);
  } catch (const ContractError& error) {
    throw FormatError(fmt::format("{}: the manifest's tensors belong to no file: {}",
                                  file.path().string(), error.what()));
  }
  std::string found(std::min<std::uint64_t>(expected.size(), file.bytes()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span{found}));
  found.resize(expected.size());
  std::uint64_t end = expected.size();
  bool fills = true;
  for (const ManifestTensor* tensor : tensors) {
    fills = fills && tensor->first_byte == end;
    end += tensor->bytes;
  }
  if (found != expected || !fills || end != file.bytes()) {
    refuse_header(file, expected, found, tensors);
  }
}

// A file without tensors is the index of a set.
void check_index_of(const ReadableFile& file, const Manifest& manifest) {
  const std::string name = file.path().filename().string();
  if (!name.ends_with(kIndexEnd)) {
    throw FormatError(fmt::format(
        "{}: the manifest lists no tensor in it; the checkpoint is damaged, use another one",
        file.path().string()));
  }
  const std::string begin = name.substr(0, name.size() - kIndexEnd.size()) + '-';
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  std::uint64_t bytes = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!tensor.file.starts_with(begin)) { continue; }
    pairs.emplace_back(tensor.name, tensor.file);
    bytes += tensor.bytes;
  }
  std::string expected;
  try {
    expected = format_index(std::move(pairs), bytes);
  } catch (const ContractError& error) {
    throw FormatError(fmt::format("{}: the manifest's tensors have no index: {}",
                                  file.path().string(), error.what()));
  }
  if (read_text(file.path(), file.bytes()) != expected) {
    throw FormatError(fmt::format(
        "{}: the index differs from the manifest's; the file is damaged, use another checkpoint",
        file.path().string()));
  }
}

}  // namespace

struct CheckpointReader::Files {
  ReadableFiles open;
  std::map<std::pair<std::string_view, std::string_view>, const ManifestTensor*> by_name;
};

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : folder_{std::move(folder)},
      manifest_{manifest_in(folder_)},
      files_{std::make_unique<Files>()} {
  const TensorsByFile tensors = by_file(manifest_);
  for (const auto& [name, bytes] : manifest_.files) {
    const auto opened = files_->open.at(folder_ / name);
    const ReadableFile& file = *opened;
    if (file.bytes() != bytes) {
      throw FormatError(fmt::format(
          "{}: has {} bytes, but the manifest says {}; the file is damaged, use another checkpoint",
          file.path().string(), file.bytes(), bytes));
    }
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      check_index_of(file, manifest_);
    } else {
      check_header_of(file, found->second);
    }
  }
  for (const ManifestTensor& tensor : manifest_.tensors) {
    files_->by_name.try_emplace({tensor.name, tensor.role}, &tensor);
  }
}

CheckpointReader::~CheckpointReader() = default;

const ManifestTensor* CheckpointReader::find(std::string_view name, std::string_view role) const {
  const auto found = files_->by_name.find({name, role});
  return found == files_->by_name.end() ? nullptr : found->second;
}

void CheckpointReader::read(const ManifestTensor& tensor, std::uint64_t first,
                            std::span<std::byte> out) {
  expects(first <= tensor.bytes && out.size() <= tensor.bytes - first,
          "CheckpointReader: the bytes are outside the tensor");
  read(tensor.file, tensor.first_byte + first, out);
}

void CheckpointReader::read(const std::string& file, std::uint64_t first,
                            std::span<std::byte> out) {
  files_->open.at(folder_ / file)->read_at(first, out);
}

void CheckpointReader::check_block(const ManifestTensor& tensor, std::size_t block,
                                   std::span<const std::byte> bytes) const {
  TensorSums sums{tensor.bytes, tensor.chunk_bytes};
  sums.add(block * kChecksumBlock, bytes);
  if (sums.sums().at(block) != tensor.sums.at(block)) {
    refuse_block(tensor, block, sums.sums()[block]);
  }
}

void CheckpointReader::refuse_block(const ManifestTensor& tensor, std::size_t block,
                                    std::uint64_t found) const {
  const std::uint64_t first = block * kChecksumBlock;
  const std::uint64_t at = tensor.first_byte + first;
  const std::uint64_t end = tensor.first_byte + std::min(first + kChecksumBlock, tensor.bytes);
  throw FormatError(
      fmt::format("{}: bytes {} to {}: tensor '{}' ({}) is damaged: the checksum of these bytes is "
                  "{:016x}, expected {:016x}; use another checkpoint",
                  (folder_ / tensor.file).string(), at, end - 1, shown(tensor.name), tensor.role,
                  found, tensor.sums[block]));
}

/// `buffer` has room for whole chunks.
void CheckpointReader::verify_block(const ManifestTensor& tensor, std::size_t block,
                                    std::span<std::byte> buffer) {
  const std::uint64_t end = std::min((block + 1) * kChecksumBlock, tensor.bytes);
  TensorSums sums{tensor.bytes, tensor.chunk_bytes};
  for (std::uint64_t at = block * kChecksumBlock; at < end; at += buffer.size()) {
    const std::span bytes = buffer.first(std::min<std::uint64_t>(buffer.size(), end - at));
    read(tensor, at, bytes);
    sums.add(at, bytes);
  }
  if (sums.sums().at(block) != tensor.sums.at(block)) {
    refuse_block(tensor, block, sums.sums()[block]);
  }
}

// A chunk's bytes are a power of two, as they divide a block.
void CheckpointReader::verify_part_of(std::size_t part, std::size_t parts) {
  constexpr std::uint64_t kReadAtOnce = std::uint64_t{1} << 20;
  std::vector<std::byte> buffer;
  std::size_t number = 0;
  for (const ManifestTensor& tensor : manifest_.tensors) {
    buffer.resize(std::max<std::uint64_t>({buffer.size(), kReadAtOnce, tensor.chunk_bytes}));
    for (std::size_t block = 0; block < tensor.sums.size(); ++block) {
      if (number++ % parts == part) { verify_block(tensor, block, buffer); }
    }
  }
}

void CheckpointReader::verify(const std::function<void(std::uint64_t bytes)>& progress,
                              std::string_view role) {
  std::vector<std::byte> buffer(kChecksumBlock);
  for (const ManifestTensor& tensor : manifest_.tensors) {
    if (!role.empty() && tensor.role != role) { continue; }
    for (std::size_t block = 0; block < tensor.sums.size(); ++block) {
      const std::uint64_t first = block * kChecksumBlock;
      const std::span bytes =
          std::span{buffer}.first(std::min<std::uint64_t>(kChecksumBlock, tensor.bytes - first));
      read(tensor, first, bytes);
      check_block(tensor, block, bytes);
      if (progress) { progress(bytes.size()); }
    }
  }
}

}  // namespace tessera
