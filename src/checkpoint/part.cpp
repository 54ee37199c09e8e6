#include "checkpoint/part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/checksum.hpp"
#include "checkpoint/file_check.hpp"
#include "checkpoint/json_string.hpp"
#include "checkpoint/parsed_json.hpp"
#include "checkpoint/readable_file.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/folders.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostParts = 1'000'000;

std::uint64_t end_of(const PartRange& range) {
  return range.first_byte + range.bytes;
}

/// The fault in the ranges; empty if there is none.
std::string fault_in(const CheckpointPart& part) {
  if (part.parts < 1 || part.part < 0 || part.part >= part.parts) {
    return fmt::format("part {} of {}", part.part, part.parts);
  }
  std::map<std::string, std::uint64_t> done;
  for (const PartRange& range : part.ranges) {
    const auto file = part.manifest.files.find(range.file);
    if (file == part.manifest.files.end()) { return "bytes of unknown file " + range.file; }
    const std::uint64_t size = file->second;
    if (range.bytes == 0 || range.bytes > size || range.first_byte > size - range.bytes) {
      return fmt::format("{} bytes at {} of {}, whose size is {}", range.bytes, range.first_byte,
                         range.file, size);
    }
    std::uint64_t& last = done[range.file];
    if (range.first_byte < last) {
      return fmt::format("bytes from {} on of {} after byte {}", range.first_byte, range.file,
                         last);
    }
    last = end_of(range);
  }
  return "";
}

PartRange range_of(const JsonFields& fields) {
  return {fields.text("file"), fields.number("first_byte"), fields.number("bytes")};
}

CheckpointPart part_of(const std::string& path, const nlohmann::json& root) {
  const std::string where = "part";
  const JsonFields fields{path, where, root};
  CheckpointPart part;
  part.save = fields.text("save");
  part.part = static_cast<int>(fields.number("part", kMostParts));
  part.parts = static_cast<int>(fields.number("parts", kMostParts));
  const std::string of_range = "range";
  for (const nlohmann::json& range : fields.array("ranges")) {
    part.ranges.push_back(range_of(JsonFields{path, of_range, range}));
  }
  part.manifest = parse_manifest(path, fields.text("manifest"));
  if (const std::string fault = fault_in(part); !fault.empty()) { fields.refuse(fault); }
  return part;
}

/// Adds the bytes that `range` of `file` contains of `tensor`.
void add_range(TensorSums& sums, const ManifestTensor& tensor, const PartRange& range,
               const ReadableFile& file) {
  const std::uint64_t end = std::min(end_of(range), tensor.first_byte + tensor.bytes);
  std::uint64_t first = std::max(range.first_byte, tensor.first_byte);
  std::vector<std::byte> block;
  while (first < end) {
    const std::uint64_t in_tensor = first - tensor.first_byte;
    block.resize(std::min(kChecksumBlock - in_tensor % kChecksumBlock, end - first));
    file.read_at(first, block);
    sums.add(in_tensor, block);
    first += block.size();
  }
}

/// Whether `range` begins and ends at chunks of `tensor`, where it overlaps it.
bool divides_no_chunk(const ManifestTensor& tensor, const PartRange& range) {
  const std::uint64_t tensor_end = tensor.first_byte + tensor.bytes;
  if (end_of(range) <= tensor.first_byte || range.first_byte >= tensor_end) { return true; }
  const auto divides = [&](std::uint64_t at) {
    return at > tensor.first_byte && at < tensor_end &&
           (at - tensor.first_byte) % tensor.chunk_bytes != 0;
  };
  return !divides(range.first_byte) && !divides(end_of(range));
}

/// The sums of the bytes that this part has of `tensor` in `file`.
TensorSums sums_of(const CheckpointPart& part, const ManifestTensor& tensor,
                   const ReadableFile& file) {
  TensorSums sums{tensor.bytes, tensor.chunk_bytes};
  for (const PartRange& range : part.ranges) {
    if (range.file != tensor.file) { continue; }
    if (!divides_no_chunk(tensor, range)) {
      throw FormatError(
          fmt::format("{}: the range at byte {} splits a chunk of tensor '{}'; the part is damaged",
                      file.path().string(), range.first_byte, shown(tensor.name)));
    }
    add_range(sums, tensor, range, file);
  }
  return sums;
}

void verify_tensor(const CheckpointPart& part, const ManifestTensor& tensor,
                   const ReadableFile& file) {
  const TensorSums found = sums_of(part, tensor, file);
  for (std::size_t block = 0; block < tensor.sums.size(); ++block) {
    if (found.sums()[block] == tensor.sums[block]) { continue; }
    const std::uint64_t first = tensor.first_byte + block * kChecksumBlock;
    const std::uint64_t end = std::min(first + kChecksumBlock, tensor.first_byte + tensor.bytes);
    throw FormatError(fmt::format(
        "{}: bytes {} to {}: tensor '{}' ({}) is damaged in this part; use another checkpoint",
        file.path().string(), first, end - 1, shown(tensor.name), tensor.role));
  }
}

/// Compares what this part has of a header or an index.
void verify_text(const CheckpointPart& part, const std::string& name, const ReadableFile& file) {
  const std::string path = file.path().string();
  const std::string expected = expected_text(part.manifest, name, path);
  for (const PartRange& range : part.ranges) {
    if (range.file != name || range.first_byte >= expected.size()) { continue; }
    std::string found(std::min(range.bytes, expected.size() - range.first_byte), '\0');
    file.read_at(range.first_byte, std::as_writable_bytes(std::span{found}));
    if (found == expected.substr(range.first_byte, found.size())) { continue; }
    throw FormatError(fmt::format(
        "{}: bytes {} to {}: they differ from what the manifest says; the file is damaged, use "
        "another checkpoint",
        path, range.first_byte, range.first_byte + found.size() - 1));
  }
}

}  // namespace

std::string format_part(const CheckpointPart& part) {
  std::string text = R"({"save": )";
  append_json_string(text, part.save, "the name of a save");
  text += fmt::format(", \"part\": {}, \"parts\": {},\n\"ranges\": [", part.part, part.parts);
  const char* between = "\n";
  for (const PartRange& range : part.ranges) {
    text += between;
    text += R"({"file": )";
    append_json_string(text, range.file, "the name of a file");
    text += fmt::format(", \"first_byte\": {}, \"bytes\": {}}}", range.first_byte, range.bytes);
    between = ",\n";
  }
  // Written as a text, because it has its own checksum.
  text += "\n],\n\"manifest\": ";
  append_json_string(text, format_manifest(part.manifest), "a manifest");
  return text + "}\n";
}

CheckpointPart parse_part(const std::string& path, std::string_view text) {
  return part_of(path, parse_json(path, text, "the part"));
}

void require_size(const ReadableFile& file, std::uint64_t bytes) {
  if (file.bytes() == bytes) { return; }
  throw FormatError(fmt::format("{}: has {} bytes, but {} says {}; the file is damaged",
                                file.path().string(), file.bytes(), kPartName, bytes));
}

}  // namespace tessera::checkpoint

namespace tessera {

void verify_part(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / checkpoint::kPartName;
  const checkpoint::CheckpointPart part = checkpoint::parse_part(
      path.string(), checkpoint::read_text(path, checkpoint::kMostPartBytes));
  checkpoint::ReadableFiles files;
  for (const auto& [name, bytes] : part.manifest.files) {
    const auto file = files.at(folder / name);
    checkpoint::require_size(*file, bytes);
    checkpoint::verify_text(part, name, *file);
  }
  for (const ManifestTensor& tensor : part.manifest.tensors) {
    checkpoint::verify_tensor(part, tensor, *files.at(folder / tensor.file));
  }
}

}  // namespace tessera
