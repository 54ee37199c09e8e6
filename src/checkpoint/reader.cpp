#include "tessera/checkpoint/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/kept_path.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/file_check.hpp"
#include "checkpoint/file_values.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_contents.hpp"
#include "checkpoint/readable_file.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {
namespace {

static_assert(CheckpointReader::kBlockBytes == checkpoint::kChecksumBlock);

Manifest manifest_in(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / checkpoint::kManifestName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw FormatError(
        fmt::format("{}: there is no checkpoint here: the folder has no {}; give the folder of a "
                    "step, such as DIR/step-00000012",
                    folder.string(), checkpoint::kManifestName));
  }
  return checkpoint::parse_manifest(path.string(),
                                    checkpoint::read_text(path, checkpoint::kMostManifestBytes));
}

}  // namespace

struct CheckpointReader::Files {
  checkpoint::ReadableFiles open;
  std::map<std::pair<std::string_view, std::string_view>, const ManifestTensor*> by_name;
};

CheckpointReader::CheckpointReader(const std::filesystem::path& folder, const Contents& contents)
    : folder_{kept_path(folder)},
      contents_{contents},
      manifest_{manifest_in(folder_)},
      files_{std::make_unique<Files>()} {
  checkpoint::require_step(folder_, manifest_.step);
  check_files(contents_);
  for (const ManifestTensor& tensor : manifest_.tensors) {
    files_->by_name.try_emplace({tensor.name, tensor.role}, &tensor);
  }
}

void CheckpointReader::check_files(const Contents& contents) const {
  for (const auto& [name, bytes] : manifest_.files) {
    if (!checkpoint::serves_any(manifest_, name, contents)) { continue; }
    const auto file = files_->open.at(folder_ / name);
    checkpoint::check_file(
        manifest_, name,
        {.path = file->path().string(),
         .bytes = file->bytes(),
         .read = [&](std::uint64_t first, auto out) { file->read_at(first, out); }});
  }
}

CheckpointReader::~CheckpointReader() = default;

const ManifestTensor* CheckpointReader::find(std::string_view name, std::string_view role) const {
  const auto found = files_->by_name.find({name, role});
  return found == files_->by_name.end() ? nullptr : found->second;
}

std::string CheckpointReader::provenance() const {
  return checkpoint::read_text(folder_ / checkpoint::kProvenanceName,
                               checkpoint::kMostProvenanceBytes);
}

void CheckpointReader::read(const ManifestTensor& tensor, std::int64_t first,
                            std::span<float> out) const {
  require_own(tensor);
  const std::int64_t elems = tensor.shape.elems();
  expects(first >= 0 && first <= elems && std::ssize(out) <= elems - first,
          "CheckpointReader: the elements are outside the tensor");
  const std::optional<DType> dtype = checkpoint::dtype_named(tensor.dtype);
  if (!dtype) {
    throw FormatError(fmt::format("{}: tensor '{}' has dtype {}, expected F32, BF16 or F16",
                                  (folder_ / tensor.file).string(), shown(tensor.name),
                                  shown(tensor.dtype)));
  }
  const std::uint64_t at = static_cast<std::uint64_t>(first) * checkpoint::file_bytes_of(*dtype);
  checkpoint::read_values(*dtype, out,
                          [&](std::span<std::byte> raw) { read_bytes(tensor, at, raw); });
}

void CheckpointReader::read_bytes(const ManifestTensor& tensor, std::uint64_t first,
                                  std::span<std::byte> out) const {
  require_own(tensor);
  expects(first <= tensor.bytes && out.size() <= tensor.bytes - first,
          "CheckpointReader: the bytes are outside the tensor");
  read_file(tensor.file, tensor.first_byte + first, out);
}

void CheckpointReader::read_file(const std::string& file, std::uint64_t first,
                                 std::span<std::byte> out) const {
  files_->open.at(folder_ / file)->read_at(first, out);
}

void CheckpointReader::require_own(const ManifestTensor& tensor) const {
  expects(find(tensor.name, tensor.role) == &tensor,
          "CheckpointReader: the tensor is not one of manifest().tensors");
}

std::span<const std::byte> CheckpointReader::read_block(const ManifestTensor& tensor,
                                                        std::size_t block,
                                                        std::span<std::byte> buffer) const {
  require_own(tensor);
  expects(block < tensor.sums.size(), "CheckpointReader: the tensor has no such block");
  const std::uint64_t first = block * kBlockBytes;
  const std::uint64_t size = std::min(kBlockBytes, tensor.bytes - first);
  expects(size <= buffer.size(), "CheckpointReader: the buffer is smaller than the block");
  const std::span bytes = buffer.first(size);
  read_bytes(tensor, first, bytes);
  check_block(tensor, block, bytes);
  return bytes;
}

void CheckpointReader::check_block(const ManifestTensor& tensor, std::size_t block,
                                   std::span<const std::byte> bytes) const {
  checkpoint::TensorSums sums{tensor.bytes, tensor.chunk_bytes};
  sums.add(block * checkpoint::kChecksumBlock, bytes);
  if (sums.sums().at(block) != tensor.sums.at(block)) {
    refuse_block(tensor, block, sums.sums()[block]);
  }
}

void CheckpointReader::refuse_block(const ManifestTensor& tensor, std::size_t block,
                                    std::uint64_t found) const {
  const std::uint64_t first = block * checkpoint::kChecksumBlock;
  const std::uint64_t at = tensor.first_byte + first;
  const std::uint64_t end =
      tensor.first_byte + std::min(first + checkpoint::kChecksumBlock, tensor.bytes);
  throw FormatError(
      fmt::format("{}: bytes {} to {}: tensor '{}' ({}) is damaged: the checksum of these bytes is "
                  "{:016x}, expected {:016x}; use another checkpoint",
                  (folder_ / tensor.file).string(), at, end - 1, shown(tensor.name), tensor.role,
                  found, tensor.sums[block]));
}

void CheckpointReader::verify(const Progress& progress) const {
  for (const Content content : contents_) { verify(content, progress); }
}

void CheckpointReader::verify(Content content, const Progress& progress) const {
  std::vector<std::byte> buffer(checkpoint::kChecksumBlock);
  for (const ManifestTensor& tensor : manifest_.tensors) {
    if (content_of(tensor.role) != content) { continue; }
    for (std::size_t block = 0; block < tensor.sums.size(); ++block) {
      const auto bytes = read_block(tensor, block, buffer);
      if (progress) { progress(bytes.size()); }
    }
  }
}

Verdict CheckpointReader::verdict_on(Content content, const Progress& progress) const {
  Verdict verdict{.content = content};
  for (const ManifestTensor& tensor : manifest_.tensors) {
    if (content_of(tensor.role) != content) { continue; }
    ++verdict.tensors;
    verdict.bytes += tensor.bytes;
  }
  try {
    check_files({content});
    verify(content, progress);
  } catch (const FormatError& error) { verdict.damage = error.what(); }
  return verdict;
}

}  // namespace tessera
