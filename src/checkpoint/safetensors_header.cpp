#include "checkpoint/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/shown.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Entry = SafetensorsReader::Entry;

constexpr std::string_view kMetadata = "__metadata__";

// Bytes of an element. Empty for dtypes that this list does not know: such a tensor may be in the
// file, but its size cannot be checked.
std::optional<std::uint64_t> width_of(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 14> kWidths{{{"F64", 8},
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
                                                                                {"F8_E4M3", 1}}};
  const auto* const found = std::find_if(kWidths.begin(), kWidths.end(),
                                         [&](const auto& known) { return known.first == dtype; });
  if (found == kWidths.end()) { return std::nullopt; }
  return found->second;
}

json parse_json(const std::string& path, std::string_view header) {
  std::set<std::string> names;
  const auto refuse_repeated = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key &&
        !names.insert(parsed.get<std::string>()).second) {
      throw FormatError(
          fmt::format("{}: two tensors are called '{}'", path, shown(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    return json::parse(header, refuse_repeated);
  } catch (const json::parse_error& error) {
    throw FormatError(fmt::format("{}: byte {}: the header is not valid JSON: {}", path,
                                  kLengthBytes + error.byte, shown(error.what())));
  } catch (const json::exception& error) {  // a number beyond every type
    throw FormatError(
        fmt::format("{}: the header is not valid JSON: {}", path, shown(error.what())));
  }
}

// One tensor's declaration, with the file it is in, for errors.
class Declaration {
 public:
  Declaration(const std::string& path, const std::string& name, const json& value)
      : path_{path}, name_{name}, value_{value} {
    require(value.is_object(), "an object");
  }

  [[nodiscard]] std::string dtype() const {
    const json& value = field("dtype");
    require(value.is_string(), "a dtype");
    return value.get<std::string>();
  }

  [[nodiscard]] Shape shape() const {
    const json& value = field("shape");
    require(value.is_array(), "a shape");
    std::vector<std::int64_t> dims;
    for (const json& dim : value) {
      require(dim.is_number_unsigned() && dim.get<std::uint64_t>() <= kMost, "a shape of sizes");
      dims.push_back(static_cast<std::int64_t>(dim.get<std::uint64_t>()));
    }
    try {
      return Shape{std::move(dims)};
    } catch (const ContractError&) { refuse("a shape of fewer elements than 2^63"); }
  }

  /// First byte and end, from the start of the data.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> offsets() const {
    const json& value = field("data_offsets");
    require(value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                value[1].is_number_unsigned() && value[0] <= value[1],
            "data_offsets of two rising numbers");
    return {value[0].get<std::uint64_t>(), value[1].get<std::uint64_t>()};
  }

 private:
  static constexpr auto kMost =
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  [[nodiscard]] const json& field(const char* key) const {
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
  const json& value_;
};

void check_size(const std::string& path, const std::string& name, const Entry& entry) {
  const std::optional<std::uint64_t> width = width_of(entry.dtype);
  if (!width) { return; }
  const auto elems = static_cast<std::uint64_t>(entry.shape.elems());
  // Compared as elements, because elems * width may not fit.
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

}  // namespace

SafetensorsEntries parse_header(const std::string& path, std::string_view header,
                                std::uint64_t file_bytes) {
  const json root = parse_json(path, header);
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
    Entry entry{declared.dtype(), declared.shape(), data_begin + first, end - first};
    check_size(path, name, entry);
    entries.emplace(name, std::move(entry));
  }
  check_cover(path, entries, data_begin, file_bytes);
  return entries;
}

std::string format_header(std::span<const SafetensorsWriter::Declared> tensors) {
  // Readers built on Python look for the framework whose conventions the file follows.
  ordered_json header{{kMetadata, {{"format", "pt"}}}};
  std::set<std::string_view> names{kMetadata};
  std::uint64_t end = 0;
  for (const SafetensorsWriter::Declared& tensor : tensors) {
    expects(!tensor.name.empty(), "SafetensorsWriter: a tensor has no name");
    if (!names.insert(tensor.name).second) {
      throw ContractError(fmt::format("SafetensorsWriter: the name '{}' is taken", tensor.name));
    }
    const auto elems = static_cast<std::uint64_t>(tensor.shape.elems());
    expects(elems <= (std::numeric_limits<std::int64_t>::max() - end) / sizeof(float),
            "SafetensorsWriter: more bytes than a file can have");
    const std::uint64_t first = end;
    end += elems * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape.dims()}, {"data_offsets", {first, end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::type_error&) {
    throw ContractError("SafetensorsWriter: a tensor's name is not UTF-8");
  }
  text.resize(round_up<std::size_t>(text.size(), 8), ' ');
  expects(text.size() <= kMaxHeaderBytes, "SafetensorsWriter: too many tensors for one file");

  std::string length;
  for (unsigned b = 0; b < kLengthBytes; ++b) {
    length.push_back(static_cast<char>((text.size() >> (8 * b)) & 0xFFU));
  }
  return length + text;
}

}  // namespace tessera
