#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tessera/base/error.hpp"

/// Every target defines this function, called once per input. A refusal by the parser's contract is
/// normal. Any other exception, a broken property (`holds`) or a sanitizer report ends the process:
/// a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tessera::fuzz {

[[nodiscard]] inline std::string_view text_of(const std::uint8_t* data, std::size_t size) noexcept {
  return size == 0 ? std::string_view{}
                   : std::string_view{reinterpret_cast<const char*>(data), size};
}

/// Ends the process with `property` unless `ok`.
void holds(bool ok, const char* property);

/// Ends the process if `what` is empty.
void is_message(std::string_view what);

/// Like is_message, and requires one short line without control characters: a foreign file must not
/// put pages of text or terminal commands into an error.
void is_line(std::string_view what);

/// Calls `work`. True if it throws one of the given errors, with a message; errors of files or
/// users must be one line. Other errors propagate.
template <class Error, class... Errors, class Work>
bool refuses(Work&& work) {
  try {
    if constexpr (sizeof...(Errors) > 0) {
      return refuses<Errors...>(std::forward<Work>(work));
    } else {
      std::forward<Work>(work)();
    }
  } catch (const Error& error) {
    if constexpr (std::is_same_v<Error, FormatError> || std::is_same_v<Error, ConfigError>) {
      is_line(error.what());
    } else {
      is_message(error.what());
    }
    return true;
  }
  return false;
}

/// Takes small values from the front of an input, and zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) noexcept : rest_{text_of(data, size)} {}

  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  [[nodiscard]] std::uint8_t byte() noexcept;
  /// Reads a length byte, then that many bytes or as many as remain.
  [[nodiscard]] std::string_view text() noexcept;
  [[nodiscard]] std::string_view rest() noexcept { return std::exchange(rest_, {}); }

 private:
  std::string_view rest_;
};

/// A file in memory with the input's bytes, for parsers that open a path.
class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  void write(std::string_view bytes);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  int descriptor_ = -1;
  std::filesystem::path path_;
};

}  // namespace tessera::fuzz
