#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace tessera::checkpoint {

/// Reads bytes [first, first + out.size()) of a file.
using ReadBytes = std::function<void(std::uint64_t first, std::span<std::byte> out)>;

/// A regular file open for reading at any offset.
///
/// Errors:  FormatError with path, offset and the system's reason.
/// Threads: any.
class ReadableFile {
 public:
  explicit ReadableFile(const std::filesystem::path& path);
  ~ReadableFile();
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Its size when it was opened.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Reads bytes [first, first + out.size()). Where memory and file are aligned alike in pages of
  /// 4096 bytes, 1 MiB and more bypasses the system's cache.
  void read_at(std::uint64_t first, std::span<std::byte> out) const;

 private:
  void read(int descriptor, std::uint64_t first, std::span<std::byte> out) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  int direct_ = -1;  // the same file, past the system's cache; negative if unsupported
  std::uint64_t bytes_ = 0;
};

/// Files that are opened when they are read. At most kMostOpen stay open.
///
/// Threads: any.
class ReadableFiles {
 public:
  static constexpr std::size_t kMostOpen = 16;

  /// Returns the file at `path`. It stays open while the caller holds it.
  [[nodiscard]] std::shared_ptr<const ReadableFile> at(const std::filesystem::path& path);

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<const ReadableFile>> open_;  // the most recently used file comes first
};

/// The whole text file at `path`, of at most `most_bytes`. Throws FormatError as ReadableFile does.
[[nodiscard]] std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes);

}  // namespace tessera::checkpoint
