#include "data/npy_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::data {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kVersionAt = 6;            // after the magic number
constexpr std::int64_t kMostHeaderBytes = 10000;  // as numpy.load
constexpr std::size_t kMostShown = 40;            // bytes of a type in an error
constexpr const char* kWriteAnew = "numpy.save(path, array.reshape(-1).astype('uint32'))";

struct IntegerType {
  std::string_view name;
  std::int64_t bytes;
  Signed has_sign;
};
constexpr std::array kTypes = {
    IntegerType{"<u2", 2, Signed::no}, IntegerType{"<i2", 2, Signed::yes},
    IntegerType{"<u4", 4, Signed::no}, IntegerType{"<i4", 4, Signed::yes},
    IntegerType{"<u8", 8, Signed::no}, IntegerType{"<i8", 8, Signed::yes},
};

[[noreturn]] void refuse(const DataFile& file, std::int64_t byte, const std::string& what) {
  throw FormatError(fmt::format("{}: byte {}: {}", file.path().string(), byte, what));
}

/// The values of a header's dictionary; those that it lacks are empty.
struct Fields {
  std::optional<std::string> type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

/// Reads the dictionary of a header, a literal of Python with three keys. It accepts what numpy
/// writes; each function returns nothing where the text has something else.
class Dictionary {
 public:
  explicit Dictionary(std::string_view text) : rest_{text} {}

  [[nodiscard]] std::optional<Fields> fields() {
    Fields fields;
    if (!take('{')) { return {}; }
    while (!take('}')) {
      if (!field(fields)) { return {}; }
      if (!take(',') && !next_is('}')) { return {}; }
    }
    skip_blanks();
    const bool whole = rest_.empty() && fields.type && fields.fortran_order && fields.shape;
    return whole ? std::optional{fields} : std::nullopt;
  }

 private:
  // Sets the field that comes next. A key that is unknown or comes twice is an error.
  bool field(Fields& fields) {
    const auto key = string();
    if (!key || !take(':')) { return false; }
    if (*key == "descr" && !fields.type) {
      fields.type = type();
      return fields.type.has_value();
    }
    if (*key == "fortran_order" && !fields.fortran_order) {
      fields.fortran_order = boolean();
      return fields.fortran_order.has_value();
    }
    if (*key == "shape" && !fields.shape) {
      fields.shape = shape();
      return fields.shape.has_value();
    }
    return false;
  }

  std::optional<std::string> string() {
    skip_blanks();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) { return {}; }
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) { return {}; }
    std::string text{rest_.substr(1, end - 1)};
    rest_.remove_prefix(end + 1);
    const bool plain = std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
    return plain ? std::optional{text} : std::nullopt;
  }

  // A list is the type of a structure: the rest of the dictionary does not matter then.
  std::optional<std::string> type() {
    if (!next_is('[')) { return string(); }
    rest_ = ", 'fortran_order': False, 'shape': ()}";
    return "a structure";
  }

  std::optional<bool> boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair{"False"sv, false}, std::pair{"True"sv, true}}) {
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return value;
      }
    }
    return {};
  }

  std::optional<std::vector<std::int64_t>> shape() {
    std::vector<std::int64_t> extents;
    if (!take('(')) { return {}; }
    while (!take(')')) {
      skip_blanks();
      std::int64_t extent = -1;
      const auto [end, failed] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (failed != std::errc{} || extent < 0) { return {}; }
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      extents.push_back(extent);
      if (!take(',') && !next_is(')')) { return {}; }
    }
    return extents;
  }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
  }
  bool next_is(char c) {
    skip_blanks();
    return rest_.starts_with(c);
  }
  bool take(char c) {
    const bool found = next_is(c);
    if (found) { rest_.remove_prefix(1); }
    return found;
  }

  std::string_view rest_;
};

std::int64_t unsigned_at(const DataFile& file, std::int64_t byte, std::size_t bytes) {
  std::array<std::byte, 4> raw{};
  file.read(byte, std::span{raw}.first(bytes));
  std::int64_t value = 0;
  for (std::size_t b = 0; b < bytes; ++b) {
    value |= std::to_integer<std::int64_t>(raw.at(b)) << (8 * b);
  }
  return value;
}

void require_size(const DataFile& file, std::int64_t header_bytes) {
  if (file.size() >= header_bytes) { return; }
  throw FormatError(fmt::format("{}: ends at byte {}, inside the header of {} bytes",
                                file.path().string(), file.size(), header_bytes));
}

/// Where the dictionary of a header lies.
struct Extent {
  std::int64_t begin;
  std::int64_t end;
};

Extent dictionary_extent(const DataFile& file) {
  require_size(file, kVersionAt + 4);
  const std::int64_t major = unsigned_at(file, kVersionAt, 1);
  const std::int64_t minor = unsigned_at(file, kVersionAt + 1, 1);
  if (major < 1 || major > 3 || minor != 0) {
    refuse(file, kVersionAt,
           fmt::format("version {}.{} of .npy is unknown, expected 1.0 to 3.0; write it anew: {}",
                       major, minor, kWriteAnew));
  }
  const std::size_t width = major == 1 ? 2 : 4;
  const std::int64_t begin = kVersionAt + 2 + static_cast<std::int64_t>(width);
  require_size(file, begin);
  const std::int64_t bytes = unsigned_at(file, kVersionAt + 2, width);
  if (bytes > kMostHeaderBytes) {
    refuse(file, kVersionAt + 2,
           fmt::format("the header has {} bytes, more than the {} of an array of tokens; write it "
                       "anew: {}",
                       bytes, kMostHeaderBytes, kWriteAnew));
  }
  require_size(file, begin + bytes);
  return {begin, begin + bytes};
}

Fields fields_of(const DataFile& file, const Extent& extent) {
  std::string text(static_cast<std::size_t>(extent.end - extent.begin), '\0');
  file.read(extent.begin, std::as_writable_bytes(std::span{text}));
  auto fields = Dictionary{text}.fields();
  if (!fields) {
    refuse(file, extent.begin,
           fmt::format("the header does not give descr, fortran_order and shape as numpy writes "
                       "them; write it anew: {}",
                       kWriteAnew));
  }
  return *std::move(fields);
}

std::string reason_against(std::string_view type) {
  if (type.starts_with('>')) { return "big-endian"; }
  if (type.starts_with("|O")) { return "Python objects"; }
  return "not integers of 2, 4 or 8 bytes";
}

const IntegerType& integer_type(const DataFile& file, std::int64_t byte, std::string_view type) {
  const auto* const found = std::ranges::find(kTypes, type, &IntegerType::name);
  if (found != kTypes.end()) { return *found; }
  refuse(file, byte,
         fmt::format("the array's type is {}: {}; write little-endian integers: {}",
                     type.substr(0, kMostShown), reason_against(type), kWriteAnew));
}

}  // namespace

TokenFileLayout npy_layout(const DataFile& file) {
  const Extent extent = dictionary_extent(file);
  const Fields fields = fields_of(file, extent);
  const IntegerType& type = integer_type(file, extent.begin, *fields.type);
  if (*fields.fortran_order) {
    refuse(file, extent.begin,
           fmt::format("the array is in Fortran's order; write it anew: {}", kWriteAnew));
  }
  if (fields.shape->size() != 1) {
    refuse(file, extent.begin,
           fmt::format("the array has {} dimensions, and tokens have one; write it anew: {}",
                       fields.shape->size(), kWriteAnew));
  }
  const std::int64_t held = (file.size() - extent.end) / type.bytes;
  if (fields.shape->front() != held) {
    refuse(file, extent.begin,
           fmt::format("the header says {} tokens, but the file has {}; copy or write it again",
                       fields.shape->front(), held));
  }
  return {extent.end, type.bytes, type.has_sign};
}

}  // namespace tessera::data
