#include "checkpoint/file_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::checkpoint {
namespace {

/// The tensors in a file, in the order of their data.
std::vector<const ManifestTensor*> tensors_in(const Manifest& manifest, const std::string& name) {
  std::vector<const ManifestTensor*> tensors;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.file == name) { tensors.push_back(&tensor); }
  }
  // Empty tensors share their offset with the next one, as in the layout. Their addresses give
  // their order in the manifest.
  std::ranges::sort(tensors, [](const auto* a, const auto* b) {
    return std::tuple{a->first_byte, a->bytes, dtype_bytes(b->dtype), a} <
           std::tuple{b->first_byte, b->bytes, dtype_bytes(a->dtype), b};
  });
  return tensors;
}

std::string index_of(const Manifest& manifest, const std::string& name) {
  const std::string begin = name.substr(0, name.size() - kIndexEnd.size()) + '-';
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  std::uint64_t bytes = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!tensor.file.starts_with(begin)) { continue; }
    pairs.emplace_back(tensor.name, tensor.file);
    bytes += tensor.bytes;
  }
  return format_index(std::move(pairs), bytes);
}

std::string header_of(const std::vector<const ManifestTensor*>& tensors) {
  std::vector<HeaderTensor> declared;
  for (const ManifestTensor* tensor : tensors) {
    declared.push_back({tensor->name, tensor->dtype, &tensor->shape});
  }
  return format_header(declared);
}

bool is_index(const std::string& name) {
  return name.ends_with(kIndexEnd);
}

/// Whether the tensors follow the header without gaps, up to the end of the file.
bool fill_file(const std::vector<const ManifestTensor*>& tensors, std::uint64_t header_bytes,
               std::uint64_t file_bytes) {
  std::uint64_t end = header_bytes;
  for (const ManifestTensor* tensor : tensors) {
    if (tensor->first_byte != end) { return false; }
    end += tensor->bytes;
  }
  return end == file_bytes;
}

/// Throws for a header that differs from the manifest, with the tensor if it can be found.
[[noreturn]] void refuse_header(const std::vector<const ManifestTensor*>& tensors,
                                const std::string& expected, const std::string& found,
                                const CheckedFile& file) {
  const SafetensorsEntries entries =
      parse_header(file.path, read_header(file.path, file.bytes, file.read), file.bytes);
  for (const ManifestTensor* tensor : tensors) {
    const auto entry = entries.find(tensor->name);
    if (entry == entries.end()) {
      throw FormatError(
          fmt::format("{}: header: tensor '{}' is missing; the file belongs to another checkpoint, "
                      "or is damaged",
                      file.path, shown(tensor->name)));
    }
    if (entry->second.shape != tensor->shape || entry->second.dtype != tensor->dtype ||
        entry->second.first_byte != tensor->first_byte) {
      throw FormatError(fmt::format(
          "{}: header: tensor '{}' is {} {} at byte {}, but the manifest has {} {} at byte {}; the "
          "file belongs to another checkpoint, or is damaged",
          file.path, shown(tensor->name), shown(entry->second.dtype),
          entry->second.shape.to_string(), entry->second.first_byte, tensor->dtype,
          tensor->shape.to_string(), tensor->first_byte));
    }
  }
  const auto at = std::ranges::mismatch(expected, found).in1;
  throw FormatError(
      fmt::format("{}: byte {}: the header differs from the manifest's; the file is damaged, use "
                  "another checkpoint",
                  file.path, at - expected.begin()));
}

}  // namespace

std::string expected_text(const Manifest& manifest, const std::string& name,
                          const std::string& path) {
  try {
    return is_index(name) ? index_of(manifest, name) : header_of(tensors_in(manifest, name));
  } catch (const ContractError& error) {
    throw FormatError(
        fmt::format("{}: the manifest's tensors belong to no file: {}", path, error.what()));
  }
}

void check_file(const Manifest& manifest, const std::string& name, const CheckedFile& file) {
  if (file.bytes != manifest.files.at(name)) {
    throw FormatError(fmt::format(
        "{}: has {} bytes, but the manifest says {}; the file is damaged, use another checkpoint",
        file.path, file.bytes, manifest.files.at(name)));
  }
  const std::string expected = expected_text(manifest, name, file.path);
  std::string found(std::min<std::uint64_t>(expected.size(), file.bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span{found}));
  if (is_index(name)) {
    if (found == expected && file.bytes == expected.size()) { return; }
    throw FormatError(fmt::format(
        "{}: the index differs from the manifest's; the file is damaged, use another checkpoint",
        file.path));
  }
  const std::vector<const ManifestTensor*> tensors = tensors_in(manifest, name);
  if (found == expected && fill_file(tensors, expected.size(), file.bytes)) { return; }
  found.resize(expected.size());
  refuse_header(tensors, expected, found, file);
}

}  // namespace tessera::checkpoint
