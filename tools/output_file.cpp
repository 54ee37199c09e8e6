#include "output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

/// Opens without ever waiting: for a pipe that nobody reads fopen would wait for good.
std::FILE* open_new(const std::filesystem::path& path) {
  constexpr mode_t everyone = 0666;
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, everyone);
  if (file < 0) {
    if (errno != ENXIO) { return nullptr; }
    throw ConfigError(fmt::format(
        "{} is a pipe that nobody reads; start its reader first, or name a file", path.string()));
  }
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  std::FILE* const stream = ::fdopen(file, "wb");
  if (stream == nullptr) { ::close(file); }
  return stream;
}

}  // namespace

void require_writable(std::string_view option, const std::filesystem::path& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (std::filesystem::is_fifo(path, ignored)) { return; }  // looking would end its reader
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    throw ConfigError(fmt::format("{}: cannot write {}: {}", option, path.string(),
                                  std::generic_category().message(errno)));
  }
  std::fclose(file);
  if (!existed) { std::filesystem::remove(path, ignored); }
}

OutputFile::OutputFile(std::filesystem::path path)
    : path_{std::move(path)}, file_{open_new(path_)} {
  if (!file_) { fail(); }
}

void OutputFile::write(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!written || std::fflush(file_.get()) != 0) { fail(); }
}

void OutputFile::fail() const {
  throw Error(
      fmt::format("cannot write {}: {}", path_.string(), std::generic_category().message(errno)));
}

namespace {

void require_two_apart(const Output& first, const Output& second) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(first.path, ignored) && !fs::is_regular_file(first.path, ignored)) { return; }
  const auto place = [](const Output& output) {
    std::error_code failed;
    const fs::path whole = fs::weakly_canonical(fs::absolute(output.path), failed);
    return failed ? output.path.lexically_normal() : whole;
  };
  if (place(first) != place(second)) { return; }
  throw ConfigError(fmt::format("{} and {} would both write {}; give each a file of its own",
                                first.option, second.option, second.path.string()));
}

}  // namespace

void require_apart(const std::vector<Output>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!outputs[i].path.empty() && !outputs[j].path.empty()) {
        require_two_apart(outputs[j], outputs[i]);
      }
    }
  }
}

}  // namespace tessera::tools
