#include "tessera/data/token_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <vector>

#include "data/data_file.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesKeptOpen = 128;

// Where `out.size()` values of `width` bytes are read to before they are widened in place: the end
// of `out`'s own memory. Value i then lies at or after token i, so widening from the front only
// overwrites values already used.
std::span<std::byte> raw_tail(std::span<std::int32_t> out, std::size_t width) {
  return std::as_writable_bytes(out).last(out.size() * width);
}

class ByteTokens final : public TokenSource {
 public:
  // Neither `files` nor any of them is empty.
  ByteTokens(fs::path path, std::vector<DataFile> files)
      : path_{std::move(path)}, files_{std::move(files)} {
    for (const DataFile& file : files_) {
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
  std::vector<DataFile> files_;
  std::vector<std::int64_t> first_;  // first token of each file, in the whole
  std::int64_t size_ = 0;
};

class Uint16Tokens final : public TokenSource {
 public:
  Uint16Tokens(DataFile file, std::int64_t header_bytes)
      : file_{std::move(file)}, header_bytes_{header_bytes} {}

  std::int64_t size() const noexcept override { return (file_.size() - header_bytes_) / 2; }
  std::string name() const override { return file_.path().string(); }

  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    expects(first >= 0 && first <= size() && std::ssize(out) <= size() - first,
            "TokenSource: the tokens are outside the data");
    const std::span<std::byte> raw = raw_tail(out, 2);
    file_.read(header_bytes_ + 2 * first, raw);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto low = std::to_integer<std::int32_t>(raw[2 * i]);
      const auto high = std::to_integer<std::int32_t>(raw[2 * i + 1]);
      out[i] = low | (high << 8);
    }
  }

 private:
  DataFile file_;
  std::int64_t header_bytes_;
};

[[noreturn]] void refuse_empty(const fs::path& path) {
  throw ConfigError(fmt::format("data: '{}' is empty; give a file with text", path.string()));
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

std::int64_t int32_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint32_t value = 0;
  for (std::size_t b = 0; b < 4; ++b) {
    value |= std::to_integer<std::uint32_t>(bytes[4 * index + b]) << (8 * b);
  }
  return static_cast<std::int32_t>(value);
}

constexpr std::int64_t kHeaderBytes = 256 * 4;
constexpr std::int64_t kMagic = 20240520;
constexpr std::int64_t kVersion = 1;

// Size of the header at the start of `file`: 0 if the file is raw.
std::int64_t checked_header_bytes(const DataFile& file) {
  const std::string path = file.path().string();
  std::array<std::byte, 12> start{};
  const auto have = static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 12));
  file.read(0, std::span{start}.first(have));
  if (have < 4 || int32_at(start, 0) != kMagic) { return 0; }
  if (file.size() < kHeaderBytes) {
    throw FormatError(fmt::format("{}: ends at byte {}, inside the header of {} bytes", path,
                                  file.size(), kHeaderBytes));
  }
  if (int32_at(start, 1) != kVersion) {
    throw FormatError(fmt::format("{}: byte 4: the header has version {}, expected {}", path,
                                  int32_at(start, 1), kVersion));
  }
  const std::int64_t held = (file.size() - kHeaderBytes) / 2;
  if (int32_at(start, 2) != held) {
    throw FormatError(fmt::format("{}: byte 8: the header says {} tokens, but the file has {}",
                                  path, int32_at(start, 2), held));
  }
  return kHeaderBytes;
}

}  // namespace

std::shared_ptr<const TokenSource> open_bytes(const fs::path& path) {
  std::error_code failed;
  std::vector<DataFile> files;
  if (fs::is_directory(path, failed)) {
    const std::vector<fs::path> paths = text_files(path);
    const KeepOpen keep = paths.size() <= kFilesKeptOpen ? KeepOpen::yes : KeepOpen::no;
    files.reserve(paths.size());
    for (const fs::path& each : paths) { files.emplace_back(each, keep); }
    // Those emptied since the folder was listed.
    std::erase_if(files, [](const DataFile& file) { return file.size() == 0; });
  } else {
    files.emplace_back(path, KeepOpen::yes);
  }
  if (files.empty() || files.front().size() == 0) { refuse_empty(path); }
  return std::make_shared<ByteTokens>(path, std::move(files));
}

std::shared_ptr<const TokenSource> open_tokens(const fs::path& path) {
  DataFile file{path, KeepOpen::yes};
  if (file.size() == 0) { refuse_empty(path); }
  const std::int64_t header_bytes = checked_header_bytes(file);
  if (file.size() % 2 != 0) {
    throw FormatError(
        fmt::format("{}: half a token at byte {}: a file of uint16 tokens must have an even size",
                    path.string(), file.size() - 1));
  }
  if (file.size() == header_bytes) { refuse_empty(path); }
  return std::make_shared<Uint16Tokens>(std::move(file), header_bytes);
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
