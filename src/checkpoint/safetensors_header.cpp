#include "checkpoint/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "checkpoint/json_string.hpp"
#include "checkpoint/parsed_json.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::checkpoint {
namespace {

using Entry = SafetensorsReader::Entry;

constexpr std::string_view kMetadata = "__metadata__";

// One tensor's declaration, with its file's path for errors.
class Declaration {
 public:
  Declaration(const std::string& path, const std::string& name, const nlohmann::json& value)
      : path_{path}, name_{name}, value_{value} {
    require(value.is_object(), "an object");
  }

  [[nodiscard]] std::string dtype() const {
    const nlohmann::json& value = field("dtype");
    require(value.is_string(), "a dtype");
    return value.get<std::string>();
  }

  [[nodiscard]] Shape shape() const {
    const nlohmann::json& value = field("shape");
    require(value.is_array(), "a shape");
    std::vector<std::int64_t> dims;
    for (const nlohmann::json& dim : value) {
      require(dim.is_number_unsigned() && dim.get<std::uint64_t>() <= kMost, "a shape of sizes");
      dims.push_back(static_cast<std::int64_t>(dim.get<std::uint64_t>()));
    }
    try {
      return Shape{std::move(dims)};
    } catch (const ContractError&) { refuse("a shape of fewer elements than 2^63"); }
  }

  /// First byte and end, from the start of the data.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> offsets() const {
    const nlohmann::json& value = field("data_offsets");
    require(value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                value[1].is_number_unsigned() && value[0] <= value[1],
            "data_offsets of two ascending numbers");
    return {value[0].get<std::uint64_t>(), value[1].get<std::uint64_t>()};
  }

 private:
  static constexpr auto kMost =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  [[nodiscard]] const nlohmann::json& field(const char* key) const {
    const auto found = value_.find(key);
    require(found != value_.end(), key);
    return *found;
  }
  void require(bool ok, const char* what) const {
    if (!ok) { refuse(what); }
  }
  [[noreturn]] void refuse(const char* expected) const {
    throw FormatError(
        fmt::format("{}: header: tensor '{}': expected {}", path_, shown(name_), expected));
  }

  const std::string& path_;
  const std::string& name_;
  const nlohmann::json& value_;
};

void check_size(const std::string& path, const std::string& name, const Entry& entry) {
  const std::optional<std::uint64_t> width = dtype_bytes(entry.dtype);
  if (!width) { return; }
  const auto elems = static_cast<std::uint64_t>(entry.shape.elems());
  // Compared as elements, because elems * width may overflow.
  if (entry.bytes % *width == 0 && entry.bytes / *width == elems) { return; }
  throw FormatError(fmt::format("{}: byte {}: tensor '{}' has {} bytes, but {} elements of {}",
                                path, entry.first_byte, shown(name), entry.bytes, elems,
                                entry.dtype));
}

void check_cover(const std::string& path, const SafetensorsEntries& entries,
                 std::uint64_t data_begin, std::uint64_t file_bytes) {
  std::vector<std::pair<const std::string*, const Entry*>> by_place;
  for (const auto& [name, entry] : entries) { by_place.emplace_back(&name, &entry); }
  std::sort(by_place.begin(), by_place.end(), [](const auto& a, const auto& b) {
    return std::pair{a.second->first_byte, a.second->bytes} <
           std::pair{b.second->first_byte, b.second->bytes};
  });
  std::uint64_t end = data_begin;
  for (const auto& [name, entry] : by_place) {
    if (entry->first_byte != end) {
      throw FormatError(fmt::format(
          "{}: byte {}: tensor '{}' starts here, expected at byte {} ({})", path, entry->first_byte,
          shown(*name), end, entry->first_byte < end ? "overlap" : "gap"));
    }
    end += entry->bytes;
  }
  if (end != file_bytes) {
    throw FormatError(fmt::format("{}: byte {}: the tensors end here, but the file has {} bytes",
                                  path, end, file_bytes));
  }
}

[[noreturn]] void refuse_name(std::string_view name) {
  if (name.empty()) { throw ContractError("safetensors: a tensor has no name; name it"); }
  throw ContractError(
      fmt::format("safetensors: the name '{}' is used twice; give each tensor its own", name));
}

// Bytes of a tensor whose data starts `first` bytes after the header.
std::uint64_t declared_bytes(const HeaderTensor& tensor, std::uint64_t first) {
  const std::optional<std::uint64_t> width = dtype_bytes(tensor.dtype);
  if (!width) {
    throw ContractError(fmt::format("safetensors: tensor '{}' has the unknown dtype {}",
                                    tensor.name, tensor.dtype));
  }
  const auto elems = static_cast<std::uint64_t>(tensor.shape->elems());
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() - kMaxHeaderBytes - 8;
  if (elems > (kMost - first) / *width) {
    throw ContractError(
        fmt::format("safetensors: tensor '{}' of {} elements has more bytes than a file can have",
                    tensor.name, elems));
  }
  return elems * *width;
}

template <class Numbers>
void append_numbers(std::string& text, const Numbers& numbers) {
  for (const auto number : numbers) {
    if (text.back() != '[') { text += ','; }
    const fmt::format_int digits{number};
    text.append(digits.data(), digits.size());
  }
}

}  // namespace

std::optional<std::uint64_t> dtype_bytes(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 15> kWidths{{{"F64", 8},
                                                                                {"I64", 8},
                                                                                {"U64", 8},
                                                                                {"F32", 4},
                                                                                {"I32", 4},
                                                                                {"U32", 4},
                                                                                {"F16", 2},
                                                                                {"BF16", 2},
                                                                                {"I16", 2},
                                                                                {"U16", 2},
                                                                                {"I8", 1},
                                                                                {"U8", 1},
                                                                                {"BOOL", 1},
                                                                                {"F8_E4M3", 1},
                                                                                {"F8_E5M2", 1}}};
  const auto* const found = std::find_if(kWidths.begin(), kWidths.end(),
                                         [&](const auto& known) { return known.first == dtype; });
  if (found == kWidths.end()) { return std::nullopt; }
  return found->second;
}

std::string read_header(const std::string& path, std::uint64_t file_bytes, const ReadBytes& read) {
  if (file_bytes < kLengthBytes) {
    throw FormatError(
        fmt::format("{}: ends at byte {}, before the header's length of {} bytes; the file is not "
                    "safetensors, or was cut off",
                    path, file_bytes, kLengthBytes));
  }
  std::uint64_t bytes = 0;
  read(0, std::as_writable_bytes(std::span{&bytes, 1}));
  if (bytes > kMaxHeaderBytes || bytes > file_bytes - kLengthBytes) {
    throw FormatError(
        fmt::format("{}: byte 0: the header's length is {}, but the file has {} bytes (limit {}); "
                    "the file is not safetensors, or is damaged",
                    path, bytes, file_bytes, kMaxHeaderBytes));
  }
  std::string header(bytes, '\0');
  read(kLengthBytes, std::as_writable_bytes(std::span{header}));
  return header;
}

std::string read_header(const ReadableFile& file) {
  return read_header(file.path().string(), file.bytes(),
                     [&](std::uint64_t first, auto out) { file.read_at(first, out); });
}

SafetensorsEntries parse_header(const std::string& path, std::string_view header,
                                std::uint64_t file_bytes) {
  const nlohmann::json root = parse_json(path, header, "the header", kLengthBytes);
  if (!root.is_object()) {
    throw FormatError(
        fmt::format("{}: byte {}: the header is not a JSON object", path, kLengthBytes));
  }
  const std::uint64_t data_begin = kLengthBytes + header.size();
  SafetensorsEntries entries;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) { continue; }
    const Declaration declared{path, name, value};
    const auto [first, end] = declared.offsets();
    if (end > file_bytes - data_begin) {
      throw FormatError(fmt::format(
          "{}: tensor '{}' ends at byte {} of the data, but the file holds {} bytes of it", path,
          shown(name), end, file_bytes - data_begin));
    }
    Entry entry{declared.dtype(), declared.shape(), data_begin + first, end - first, path};
    check_size(path, name, entry);
    entries.emplace(name, std::move(entry));
  }
  check_cover(path, entries, data_begin, file_bytes);
  return entries;
}

std::string format_header(std::span<const HeaderTensor> tensors) {
  // Readers built on Python expect the name of the framework whose conventions the file follows.
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::unordered_set<std::string_view> names{kMetadata};
  names.reserve(tensors.size() + 1);
  std::uint64_t end = 0;
  for (const HeaderTensor& tensor : tensors) {
    if (tensor.name.empty() || !names.insert(tensor.name).second) { refuse_name(tensor.name); }
    const std::uint64_t first = end;
    end += declared_bytes(tensor, end);
    text += ',';
    append_json_string(text, tensor.name, "a tensor's name");
    text += R"(:{"dtype":")";
    text += tensor.dtype;
    text += R"(","shape":[)";
    append_numbers(text, tensor.shape->dims());
    text += R"(],"data_offsets":[)";
    append_numbers(text, std::array{first, end});
    text += "]}";
  }
  text += '}';
  text.resize(round_up<std::size_t>(text.size(), 8), ' ');
  expects(text.size() <= kMaxHeaderBytes,
          "safetensors: too many tensors for one file; write several files");

  std::string length;
  for (unsigned b = 0; b < kLengthBytes; ++b) {
    length.push_back(static_cast<char>((text.size() >> (8 * b)) & 0xFFU));
  }
  return length + text;
}

}  // namespace tessera::checkpoint
