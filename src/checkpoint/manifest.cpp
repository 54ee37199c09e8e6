#include "checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "checkpoint/checksum.hpp"
#include "checkpoint/json_string.hpp"
#include "checkpoint/manifest_contents.hpp"
#include "checkpoint/parsed_json.hpp"
#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/state_names.hpp"
#include "checkpoint/weights_index.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::checkpoint {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"weight", "master", "remainder",
                                                    "moment", "scales", "extra"};
constexpr std::uint64_t kMostFileBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kSumDigits = 16;

void append_hex(std::string& text, std::uint64_t sum) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (unsigned shift = 64; shift > 0; shift -= 4) {
    text.push_back(kDigits[(sum >> (shift - 4)) & 0xFU]);
  }
}

void append_number(std::string& text, std::uint64_t number) {
  const fmt::format_int digits{number};
  text.append(digits.data(), digits.size());
}

// "name": { one entry a line },
template <class Map, class Append>
void append_map(std::string& text, const char* name, const Map& map, Append&& append_value) {
  text += fmt::format("\"{}\": {{", name);
  const char* between = "\n";
  for (const auto& [key, value] : map) {
    text += between;
    append_json_string(text, key, name);
    text += ": ";
    append_value(value);
    between = ",\n";
  }
  text += "\n},\n";
}

void append_tensor(std::string& text, const ManifestTensor& tensor) {
  text += R"({"name": )";
  append_json_string(text, tensor.name, "a tensor's name");
  text += R"(, "role": )";
  append_json_string(text, tensor.role, "a tensor's role");
  text += R"(, "dtype": )";
  append_json_string(text, tensor.dtype, "a tensor's dtype");
  text += R"(, "shape": [)";
  const char* between = "";
  for (const std::int64_t dim : tensor.shape.dims()) {
    text += between;
    append_number(text, static_cast<std::uint64_t>(dim));
    between = ", ";
  }
  text += R"(], "chunk_bytes": )";
  append_number(text, tensor.chunk_bytes);
  text += R"(, "file": )";
  append_json_string(text, tensor.file, "a file's name");
  text += R"(, "first_byte": )";
  append_number(text, tensor.first_byte);
  text += R"(, "bytes": )";
  append_number(text, tensor.bytes);
  text += R"(, "sums": ")";
  for (const std::uint64_t sum : tensor.sums) { append_hex(text, sum); }
  text += "\"}";
}

std::map<std::string, std::string> texts_of(const JsonFields& fields, const char* key) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : fields.object(key).items()) {
    if (!value.is_string()) { fields.refuse(fmt::format("'{}': '{}' is not a text", key, name)); }
    texts.emplace(name, value.get<std::string>());
  }
  return texts;
}

std::map<std::string, std::uint64_t> files_of(const JsonFields& fields) {
  std::map<std::string, std::uint64_t> files;
  for (const auto& [name, bytes] : fields.object("files").items()) {
    if (!is_plain_name(name)) {
      fields.refuse(fmt::format("'files': '{}' is not a file name in this folder", name));
    }
    if (!bytes.is_number_unsigned() || bytes.get<std::uint64_t>() > kMostFileBytes) {
      fields.refuse(fmt::format("'files': the size of {} is not a number of bytes", name));
    }
    files.emplace(name, bytes.get<std::uint64_t>());
  }
  return files;
}

Shape shape_of(const JsonFields& fields) {
  std::vector<std::int64_t> dims;
  for (const nlohmann::json& dim : fields.array("shape")) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > kMostFileBytes) {
      fields.refuse("expected a shape of sizes");
    }
    dims.push_back(static_cast<std::int64_t>(dim.get<std::uint64_t>()));
  }
  try {
    return Shape{std::move(dims)};
  } catch (const ContractError&) { fields.refuse("expected a shape of fewer than 2^63 elements"); }
}

std::uint64_t sum_of(const JsonFields& fields, std::string_view digits) {
  std::uint64_t sum = 0;
  for (const char c : digits) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) { fields.refuse("'sums' are not hexadecimal"); }
    sum = sum << 4U | static_cast<std::uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return sum;
}

std::vector<std::uint64_t> sums_of(const JsonFields& fields, std::uint64_t bytes) {
  const std::string_view digits = fields.text("sums");
  const std::uint64_t blocks = bytes / kChecksumBlock + (bytes % kChecksumBlock != 0 ? 1 : 0);
  if (digits.size() % kSumDigits != 0 || digits.size() / kSumDigits != blocks) {
    fields.refuse(fmt::format("'sums' has {} digits, expected {} for each of {} blocks",
                              digits.size(), kSumDigits, blocks));
  }
  std::vector<std::uint64_t> sums;
  for (std::size_t at = 0; at < digits.size(); at += kSumDigits) {
    sums.push_back(sum_of(fields, digits.substr(at, kSumDigits)));
  }
  return sums;
}

void check_bytes(const JsonFields& fields, const ManifestTensor& tensor) {
  const auto width = dtype_bytes(tensor.dtype);
  if (!width) { fields.refuse(fmt::format("the dtype {} is unknown", tensor.dtype)); }
  const auto elems = static_cast<std::uint64_t>(tensor.shape.elems());
  // Compared as elements, because elems * width may overflow.
  if (tensor.bytes % *width != 0 || tensor.bytes / *width != elems) {
    fields.refuse(
        fmt::format("has {} bytes, but {} elements of {}", tensor.bytes, elems, tensor.dtype));
  }
  if (!may_be(tensor.role, tensor.dtype)) {
    fields.refuse(fmt::format("a {} is never {}", tensor.role, tensor.dtype));
  }
  const std::uint64_t chunk = chunk_bytes_of(tensor.role, tensor.dtype);
  if (tensor.chunk_bytes != chunk) {
    fields.refuse(fmt::format("'chunk_bytes' is {}, expected {}", tensor.chunk_bytes, chunk));
  }
}

ManifestTensor tensor_of(const std::string& path, const nlohmann::json& object, std::size_t index) {
  std::string where = fmt::format("tensor {}", index);
  const JsonFields fields{path, where, object};
  ManifestTensor tensor;
  tensor.name = fields.text("name");
  where = fmt::format("tensor '{}'", tensor.name);
  tensor.role = fields.text("role");
  if (std::find(kRoles.begin(), kRoles.end(), tensor.role) == kRoles.end()) {
    fields.refuse(fmt::format("the role '{}' is unknown", tensor.role));
  }
  tensor.dtype = fields.text("dtype");
  tensor.shape = shape_of(fields);
  tensor.chunk_bytes = fields.number("chunk_bytes");
  tensor.file = fields.text("file");
  tensor.first_byte = fields.number("first_byte", kMostFileBytes);
  tensor.bytes = fields.number("bytes", kMostFileBytes);
  check_bytes(fields, tensor);
  tensor.sums = sums_of(fields, tensor.bytes);
  return tensor;
}

void check_names(const std::string& path, const std::vector<ManifestTensor>& tensors) {
  std::set<std::pair<std::string_view, std::string_view>> names;
  for (const ManifestTensor& tensor : tensors) {
    if (!names.emplace(tensor.name, tensor.role).second) {
      throw FormatError(fmt::format("{}: tensor '{}' ({}) is listed twice", path,
                                    shown(tensor.name), tensor.role));
    }
  }
}

// Tensors must lie in their files without overlap.
void check_places(const std::string& path, const Manifest& manifest) {
  std::vector<const ManifestTensor*> by_place;
  for (const ManifestTensor& tensor : manifest.tensors) { by_place.push_back(&tensor); }
  std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) {
    return std::tie(a->file, a->first_byte, a->bytes) < std::tie(b->file, b->first_byte, b->bytes);
  });
  const ManifestTensor* before = nullptr;
  for (const ManifestTensor* tensor : by_place) {
    const auto file = manifest.files.find(tensor->file);
    if (file == manifest.files.end()) {
      throw FormatError(fmt::format("{}: tensor '{}' is in file {}, which is not listed in 'files'",
                                    path, shown(tensor->name), shown(tensor->file)));
    }
    const std::uint64_t end = tensor->first_byte + tensor->bytes;  // both below 2^63
    if (end > file->second) {
      throw FormatError(
          fmt::format("{}: tensor '{}' ends at byte {} of {}, which is only {} bytes long", path,
                      shown(tensor->name), end, shown(tensor->file), file->second));
    }
    if (before != nullptr && before->file == tensor->file &&
        before->first_byte + before->bytes > tensor->first_byte) {
      throw FormatError(fmt::format("{}: tensors '{}' and '{}' overlap at byte {} of {}", path,
                                    shown(before->name), shown(tensor->name), tensor->first_byte,
                                    shown(tensor->file)));
    }
    before = tensor;
  }
}

void check_seal(const std::string& path, std::string_view text) {
  const std::string expected_size = manifest_seal({});
  const std::size_t at = text.size() - std::min(text.size(), expected_size.size());
  if (text.substr(at) == manifest_seal(text.substr(0, at))) { return; }
  throw FormatError(
      fmt::format("{}: the text was changed: it does not match the checksum in its last lines; "
                  "restore the file from a copy, or use another checkpoint",
                  path));
}

}  // namespace

std::string manifest_seal(std::string_view before) {
  return fmt::format("\"checksum\": \"{:016x}\"\n}}\n", XXH3_64bits(before.data(), before.size()));
}

std::string format_manifest(const Manifest& manifest) {
  std::string text =
      fmt::format("{{\n\"format\": {},\n\"step\": {},\n", manifest.format, manifest.step);
  const auto append_text = [&](const std::string& value) {
    append_json_string(text, value, "a value of a checkpoint");
  };
  append_map(text, "state", manifest.state, append_text);
  append_map(text, "values", manifest.values, append_text);
  append_map(text, "files", manifest.files,
             [&](std::uint64_t bytes) { append_number(text, bytes); });
  text += "\"tensors\": [";
  const char* between = "\n";
  for (const ManifestTensor& tensor : manifest.tensors) {
    text += between;
    append_tensor(text, tensor);
    between = ",\n";
  }
  text += "\n],\n";
  return text + manifest_seal(text);
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  const nlohmann::json root = parse_json(path, text, "the manifest");
  const std::string where = "manifest";
  const JsonFields fields{path, where, root};
  Manifest manifest;
  manifest.format = static_cast<int>(fields.number("format", 1'000'000));
  if (manifest.format != kCheckpointFormat) {
    fields.refuse(
        fmt::format("the checkpoint has format {}, but this build reads format {}; use a build of "
                    "Tessera that reads it",
                    manifest.format, kCheckpointFormat));
  }
  check_seal(path, text);
  manifest.step = static_cast<std::int64_t>(fields.number("step", kMostFileBytes));
  manifest.state = texts_of(fields, "state");
  manifest.values = texts_of(fields, "values");
  manifest.files = files_of(fields);
  for (const nlohmann::json& tensor : fields.array("tensors")) {
    manifest.tensors.push_back(tensor_of(path, tensor, manifest.tensors.size()));
  }
  check_names(path, manifest.tensors);
  check_places(path, manifest);
  check_contents(path, manifest);
  return manifest;
}

}  // namespace tessera::checkpoint
