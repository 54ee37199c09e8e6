#include "tessera/data/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "data/data_file.hpp"
#include "data/token_file.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesKeptOpen = 128;
constexpr std::size_t kPieceBytes = 1 << 15;  // of a token file, read at once

// Where `out.size()` values of `width` bytes are read to before they are widened in place: the end
// of `out`'s own memory. Value i then lies at or after token i, so widening from the front only
// overwrites values already used.
std::span<std::byte> raw_tail(std::span<std::int32_t> out, std::size_t width) {
  return std::as_writable_bytes(out).last(out.size() * width);
}

class ByteTokens final : public TokenSource {
 public:
  // Neither `files` nor any of them is empty.
  ByteTokens(fs::path path, std::vector<data::DataFile> files)
      : path_{std::move(path)}, files_{std::move(files)} {
    for (const data::DataFile& file : files_) {
      first_.push_back(size_);
      size_ += file.size();
    }
  }

  std::int64_t size() const noexcept override { return size_; }
  std::string name() const override { return path_.string(); }

  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    expects(first >= 0 && first <= size_ && std::ssize(out) <= size_ - first,
            "TokenSource: the tokens are outside the data");
    const std::span<std::byte> raw = raw_tail(out, 1);
    read_bytes(first, raw);
    for (std::size_t i = 0; i < out.size(); ++i) { out[i] = std::to_integer<std::int32_t>(raw[i]); }
  }

 private:
  void read_bytes(std::int64_t first, std::span<std::byte> out) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), first);
    for (auto f = static_cast<std::size_t>(after - first_.begin()) - 1; !out.empty(); ++f) {
      const std::int64_t offset = first - first_[f];
      const auto count = std::min(std::ssize(out), files_[f].size() - offset);
      files_[f].read(offset, out.first(static_cast<std::size_t>(count)));
      out = out.subspan(static_cast<std::size_t>(count));
      first += count;
    }
  }

  fs::path path_;
  std::vector<data::DataFile> files_;
  std::vector<std::int64_t> first_;  // first token of each file, in the whole
  std::int64_t size_ = 0;
};

class FileTokens final : public TokenSource {
 public:
  FileTokens(data::DataFile file, data::TokenFileLayout layout)
      : file_{std::move(file)}, layout_{layout} {}

  std::int64_t size() const noexcept override {
    return (file_.size() - layout_.header_bytes) / layout_.token_bytes;
  }
  std::string name() const override { return file_.path().string(); }

  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    expects(first >= 0 && first <= size() && std::ssize(out) <= size() - first,
            "TokenSource: the tokens are outside the data");
    const auto width = static_cast<std::size_t>(layout_.token_bytes);
    std::array<std::byte, kPieceBytes> piece;
    while (!out.empty()) {
      const auto raw = std::span{piece}.first(width * std::min(out.size(), piece.size() / width));
      file_.read(offset_of(first), raw);
      for (std::size_t i = 0; i < raw.size() / width; ++i) {
        out[i] = checked(raw.subspan(i * width, width), first + static_cast<std::int64_t>(i));
      }
      out = out.subspan(raw.size() / width);
      first += std::ssize(raw) / layout_.token_bytes;
    }
  }

 private:
  [[nodiscard]] std::int64_t offset_of(std::int64_t place) const {
    return layout_.header_bytes + layout_.token_bytes * place;
  }

  [[nodiscard]] std::int32_t checked(std::span<const std::byte> raw, std::int64_t place) const {
    std::uint64_t token = 0;
    for (std::size_t b = 0; b < raw.size(); ++b) {
      token |= std::to_integer<std::uint64_t>(raw[b]) << (8 * b);
    }
    const std::size_t bits = 8 * raw.size();
    if (layout_.has_sign == data::Signed::yes && (token >> (bits - 1)) != 0) {
      refuse(place, std::to_string(static_cast<std::int64_t>(token << (64 - bits)) >> (64 - bits)),
             "is below 0: labels may have such numbers, tokens do not");
    }
    if (token > INT32_MAX) {
      refuse(place, std::to_string(token),
             "is beyond 2^31 - 1: no vocabulary is that large, so these are not tokens, or have "
             "another type");
    }
    return static_cast<std::int32_t>(token);
  }

  [[noreturn]] void refuse(std::int64_t place, const std::string& token, const char* why) const {
    throw FormatError(fmt::format("{}: byte {}: token {} at position {} {}", name(),
                                  offset_of(place), token, place, why));
  }

  data::DataFile file_;
  data::TokenFileLayout layout_;
};

[[noreturn]] void refuse_empty(const fs::path& path, const char* what) {
  throw ConfigError(fmt::format("data: '{}' is empty; give a file with {}", path.string(), what));
}

bool is_text_file(const fs::directory_entry& entry) {
  const fs::path name = entry.path().filename();
  if (name.native().starts_with('.') || name.extension() == ".dat" || name.extension() == ".u8") {
    return false;
  }
  // Entries that cannot be examined, or are not files of some size, are skipped; a failure to open
  // one later is an error.
  std::error_code failed;
  return entry.is_regular_file(failed) && entry.file_size(failed) > 0 && !failed;
}

std::vector<fs::path> text_files(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failed;
  for (fs::directory_iterator entry{folder, failed}, end; !failed && entry != end;
       entry.increment(failed)) {
    if (is_text_file(*entry)) { paths.push_back(entry->path()); }
  }
  if (failed) {
    throw ConfigError(fmt::format("data: the folder '{}' cannot be listed: {}", folder.string(),
                                  failed.message()));
  }
  if (paths.empty()) {
    throw ConfigError(
        fmt::format("data: the folder '{}' has no text files (hidden and empty files, subfolders, "
                    ".dat and .u8 files are skipped)",
                    folder.string()));
  }
  std::sort(paths.begin(), paths.end(), [](const fs::path& a, const fs::path& b) {
    return a.filename().native() < b.filename().native();
  });
  return paths;
}

}  // namespace

std::shared_ptr<const TokenSource> open_bytes(const fs::path& path) {
  std::error_code failed;
  std::vector<data::DataFile> files;
  if (fs::is_directory(path, failed)) {
    const std::vector<fs::path> paths = text_files(path);
    const data::KeepOpen keep =
        paths.size() <= kFilesKeptOpen ? data::KeepOpen::yes : data::KeepOpen::no;
    files.reserve(paths.size());
    for (const fs::path& each : paths) { files.emplace_back(each, keep); }
    // Those emptied since the folder was listed.
    std::erase_if(files, [](const data::DataFile& file) { return file.size() == 0; });
  } else {
    files.emplace_back(path, data::KeepOpen::yes);
  }
  if (files.empty() || files.front().size() == 0) { refuse_empty(path, "text"); }
  return std::make_shared<ByteTokens>(path, std::move(files));
}

std::vector<std::string> skipped_by_open_bytes(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry{path, failed}, end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && !is_text_file(*entry)) { names.push_back(name); }
  }
  std::ranges::sort(names);
  return names;
}

std::shared_ptr<const TokenSource> open_tokens(const fs::path& path, TokenFormat token_format) {
  data::DataFile file{path, data::KeepOpen::yes};
  if (file.size() == 0) { refuse_empty(path, "tokens"); }
  const data::TokenFileLayout layout = data::token_file_layout(file, token_format);
  const std::int64_t over = (file.size() - layout.header_bytes) % layout.token_bytes;
  if (over != 0) {
    throw FormatError(fmt::format("{}: a part of a token at byte {}: the tokens have {} bytes each",
                                  path.string(), file.size() - over, layout.token_bytes));
  }
  if (file.size() == layout.header_bytes) { refuse_empty(path, "tokens"); }
  return std::make_shared<FileTokens>(std::move(file), layout);
}

std::string container_of_data(const fs::path& path) {
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) { return {}; }
  return data::container_of(data::DataFile{path, data::KeepOpen::no});
}

void check_tokens(const TokenSource& source, std::int64_t vocab) {
  expects(vocab >= 1, "check_tokens: vocab must be at least 1");
  constexpr std::int64_t kChunk = 1 << 16;
  std::vector<std::int32_t> chunk;
  for (std::int64_t first = 0; first < source.size(); first += kChunk) {
    chunk.resize(static_cast<std::size_t>(std::min(kChunk, source.size() - first)));
    source.read(first, chunk);
    const auto bad = std::find_if(chunk.begin(), chunk.end(),
                                  [&](std::int32_t t) { return t < 0 || t >= vocab; });
    if (bad == chunk.end()) { continue; }
    throw ConfigError(fmt::format(
        "{}: token {} at position {} is outside the vocabulary of {} tokens, from 0 to {}",
        source.name(), *bad, first + (bad - chunk.begin()), vocab, vocab - 1));
  }
}

}  // namespace tessera
