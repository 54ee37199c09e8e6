#include "tessera/data/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "data/data_file.hpp"
#include "data/npy_header.hpp"
#include "data/token_file.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/ignored_target.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kPiece = 1 << 16;  // tokens or positions that are read at once

/// Little-endian; what does not fit becomes negative.
std::int64_t integer(std::span<const std::byte> raw, data::Signed has_sign) {
  std::uint64_t value = 0;
  for (std::size_t b = 0; b < raw.size(); ++b) {
    value |= std::to_integer<std::uint64_t>(raw[b]) << (8 * b);
  }
  const std::size_t unused = 64 - 8 * raw.size();
  if (has_sign == data::Signed::no) { return static_cast<std::int64_t>(value); }
  return static_cast<std::int64_t>(value << unused) >> unused;
}

void require_next(const std::filesystem::path& path, const std::vector<std::int64_t>& starts,
                  std::int64_t next) {
  if (starts.empty() ? next == 0 : next > starts.back()) { return; }
  const std::string where =
      fmt::format("{}: position {}, of document {}, ", path.string(), next, starts.size());
  throw FormatError(starts.empty() ? where + "is not 0: the first document begins with the data"
                                   : where + fmt::format("is not above {}, of the document before",
                                                         starts.back()));
}

/// Calls visit(first, tokens) for pieces of `source` in order, until it returns false.
template <class Visit>
void read_pieces(const TokenSource& source, const Visit& visit) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t first = 0; first < source.size(); first += kPiece) {
    tokens.resize(static_cast<std::size_t>(std::min(kPiece, source.size() - first)));
    source.read(first, tokens);
    if (!visit(first, std::span<const std::int32_t>{tokens})) { return; }
  }
}

void check_separator(const TokenSource& source, std::int32_t separator) {
  bool found = false;
  read_pieces(source, [&](std::int64_t /*first*/, std::span<const std::int32_t> tokens) {
    found = std::ranges::find(tokens, separator) != tokens.end();
    return !found;
  });
  if (found) { return; }
  throw ConfigError(
      fmt::format("{}: no token is {}, which is to end each document: give the token that does",
                  source.name(), separator));
}

void check_starts(const TokenSource& source, const std::vector<std::int64_t>& starts) {
  if (starts.empty() || starts.back() <= source.size()) { return; }
  throw ConfigError(
      fmt::format("{}: a document begins at position {}, but there are {} tokens: the positions "
                  "belong to other data",
                  source.name(), starts.back(), source.size()));
}

void check_mask(const TokenSource& source, const TokenSource& mask) {
  if (mask.size() != source.size()) {
    throw ConfigError(fmt::format(
        "{}: a mask of {} bytes for the {} tokens of {}: it has one byte for each token",
        mask.name(), mask.size(), source.size(), source.name()));
  }
  read_pieces(mask, [&](std::int64_t first, std::span<const std::int32_t> values) {
    const auto bad = std::ranges::find_if(values, [](std::int32_t v) { return v != 0 && v != 1; });
    if (bad == values.end()) { return true; }
    throw ConfigError(
        fmt::format("{}: byte {} is {}: a mask has 1 for tokens that count and 0 for others",
                    mask.name(), first + (bad - values.begin()), *bad));
  });
}

/// Reads until the first token that counts.
void require_counted(const TokenSource& source, const Documents& documents) {
  std::vector<std::int32_t> tokens, targets, first_keys;
  for (std::int64_t first = 0; first + 1 < source.size(); first += kPiece) {
    const std::int64_t count = std::min(kPiece, source.size() - 1 - first);
    tokens.resize(static_cast<std::size_t>(count) + 1);
    source.read(first, tokens);
    targets.assign(tokens.begin() + 1, tokens.end());
    first_keys.resize(targets.size());
    documents.divide(first, tokens, targets, first_keys);
    if (std::ranges::count(targets, kIgnoredTarget) < count) { return; }
  }
  throw ConfigError(
      fmt::format("{}: no token counts for the loss{}: nothing would be learned", source.name(),
                  documents.mask == nullptr ? ", since no document has two of them" : ""));
}

}  // namespace

void Documents::divide(std::int64_t first, std::span<const std::int32_t> tokens,
                       std::span<std::int32_t> targets, std::span<std::int32_t> first_keys) const {
  const std::size_t seq = targets.size();
  expects(tokens.size() == seq + 1 && (first_keys.size() == seq || !packed()),
          "Documents::divide: sizes that do not fit");
  if (packed()) {
    auto start = starts == nullptr ? std::vector<std::int64_t>::const_iterator{}
                                   : std::ranges::upper_bound(*starts, first);
    std::int32_t begin = 0;
    for (std::size_t t = 0; t < seq; ++t) {
      first_keys[t] = begin;
      const std::int64_t next = first + static_cast<std::int64_t>(t) + 1;
      const bool starts_here =
          separator ? tokens[t] == *separator : start != starts->end() && *start == next;
      if (!starts_here) { continue; }
      if (!separator) { ++start; }
      begin = static_cast<std::int32_t>(t + 1);
      targets[t] = kIgnoredTarget;
    }
  }
  if (mask == nullptr) { return; }
  std::vector<std::int32_t> counts(seq);
  mask->read(first + 1, counts);
  for (std::size_t t = 0; t < seq; ++t) {
    if (counts[t] == 0) { targets[t] = kIgnoredTarget; }
  }
}

std::shared_ptr<const std::vector<std::int64_t>> read_document_starts(
    const std::filesystem::path& path) {
  const data::DataFile file{path, data::KeepOpen::yes};
  constexpr std::size_t kMagicBytes = 6;
  std::array<std::byte, kMagicBytes> magic{};
  const auto begun =
      static_cast<std::size_t>(std::min(file.size(), static_cast<std::int64_t>(magic.size())));
  file.read(0, std::span{magic}.first(begun));
  if (begun < magic.size() || magic[0] != std::byte{0x93}) {
    throw FormatError(fmt::format(
        "{}: not a NumPy array of integers (.npy), one position for each document", path.string()));
  }
  const data::TokenFileLayout layout = data::npy_layout(file);
  const auto width = static_cast<std::size_t>(layout.token_bytes);
  auto starts = std::make_shared<std::vector<std::int64_t>>();
  std::vector<std::byte> raw;
  for (std::int64_t at = layout.header_bytes; at < file.size(); at += std::ssize(raw)) {
    raw.resize(std::min(static_cast<std::size_t>(file.size() - at),
                        static_cast<std::size_t>(kPiece) * width));
    file.read(at, raw);
    for (std::size_t i = 0; i + width <= raw.size(); i += width) {
      const std::int64_t next = integer(std::span{raw}.subspan(i, width), layout.has_sign);
      require_next(path, *starts, next);
      starts->push_back(next);
    }
  }
  if (starts->empty()) {
    throw ConfigError(fmt::format("{}: no position: a document begins at 0", path.string()));
  }
  return starts;
}

void check_documents(const TokenSource& source, const Documents& documents) {
  expects(!documents.separator || documents.starts == nullptr,
          "Documents: give a separator or the positions of documents, not both");
  if (documents.separator) { check_separator(source, *documents.separator); }
  if (documents.starts != nullptr) { check_starts(source, *documents.starts); }
  if (documents.mask != nullptr) { check_mask(source, *documents.mask); }
  if (documents.masked()) { require_counted(source, documents); }
}

}  // namespace tessera
