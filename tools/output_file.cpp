#include "output_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/error.hpp"

namespace tessera::tools {

void require_writable(std::string_view option, const std::filesystem::path& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    throw ConfigError(
        fmt::format("{}: cannot write {}: {}", option, path.string(), std::strerror(errno)));
  }
  std::fclose(file);
  if (!existed) { std::filesystem::remove(path, ignored); }
}

OutputFile::OutputFile(std::filesystem::path path)
    : path_{std::move(path)}, file_{std::fopen(path_.c_str(), "wb")} {
  if (!file_) { fail(); }
}

void OutputFile::write(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!written || std::fflush(file_.get()) != 0) { fail(); }
}

void OutputFile::fail() const {
  throw Error(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
}

}  // namespace tessera::tools
