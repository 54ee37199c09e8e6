#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

namespace tessera::tools {

/// Owns a file descriptor of the operating system; closes it on destruction.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_{number} {}
  Descriptor(Descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

/// Opens the file at `path` for writing, like ::open with additional `flags`, but never waits for
/// the reader of a pipe. ConfigError for a pipe without a reader; on other failures the result is
/// not open, and errno is set.
[[nodiscard]] Descriptor open_for_writing(const std::filesystem::path& path, int flags);

/// Writes all of `text`. Returns 0 or the error number. A pipe whose reader has closed gives EPIPE,
/// without SIGPIPE.
[[nodiscard]] int write_all(const Descriptor& file, std::string_view text);

}  // namespace tessera::tools
