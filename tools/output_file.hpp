#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// ConfigError, naming `option`, unless a file at `path` could be written. Changes nothing.
/// Whether somebody reads a pipe shows when it is opened.
void require_writable(std::string_view option, const std::filesystem::path& path);

struct Output {
  std::string_view option;
  std::filesystem::path path;  ///< none if empty
};

/// ConfigError that names both options if one of `outputs` would overwrite another. Devices
/// (/dev/null, a terminal) take what several write.
void require_apart(const std::vector<Output>& outputs);

/// A text file that is written from the beginning. Errors: ConfigError if it is a pipe without a
/// reader, otherwise Error with path and cause, from the write that failed.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  /// `text` has reached the operating system on return.
  void write(std::string_view text);

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace tessera::tools
