#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

namespace tessera::tools {

/// A file descriptor of the operating system's; closed at the end.
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

/// Opens what is at `path` for writing, as ::open with `flags` more, but never waits for the reader
/// of a pipe. ConfigError for a pipe that nobody reads; otherwise not open, with errno, on failure.
[[nodiscard]] Descriptor open_for_writing(const std::filesystem::path& path, int flags);

/// Writes all of `text`; 0, or the number of the error. A pipe whose reader has gone is an error
/// like others (EPIPE), and no SIGPIPE.
[[nodiscard]] int write_all(const Descriptor& file, std::string_view text);

}  // namespace tessera::tools
