#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace tessera::data {

/// Owns a file descriptor open for reading.
class Descriptor {
 public:
  Descriptor() = default;
  /// Throws ConfigError (with the path and the system's reason) if it cannot be opened.
  static Descriptor open(const std::filesystem::path& path);
  Descriptor(Descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

 private:
  explicit Descriptor(int number) noexcept : number_{number} {}
  int number_ = -1;
};

enum class KeepOpen : std::uint8_t { no, yes };

/// A regular file of known size, read at any offset without a copy in memory.
///
/// Errors:  FormatError with path and offset if it has become shorter, or the disk fails.
/// Threads: `read` may be called from any thread.
class DataFile {
 public:
  /// Throws ConfigError unless `path` is a readable regular file. `KeepOpen::no` opens it again for
  /// each read, for folders with more files than a process may hold open.
  DataFile(const std::filesystem::path& path, KeepOpen keep);

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// Absolute.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Reads bytes [first, first + out.size()).
  void read(std::int64_t first, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  std::int64_t size_ = 0;
  Descriptor descriptor_;
};

}  // namespace tessera::data
