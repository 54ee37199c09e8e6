#include "data/data_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/kept_path.hpp"
#include "tessera/base/error.hpp"

namespace tessera::data {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

// Reads bytes at `offset`, at least one; the system may return fewer than requested.
std::size_t read_some(const std::filesystem::path& path, int descriptor, std::int64_t offset,
                      std::span<std::byte> out) {
  while (true) {
    const ssize_t got = ::pread(descriptor, out.data(), out.size(), offset);
    if (got > 0) { return static_cast<std::size_t>(got); }
    if (got == 0) {
      throw FormatError(fmt::format(
          "{}: ends at byte {}, before its size at the start; do not change data while it is used",
          path.string(), offset));
    }
    if (errno != EINTR) {
      throw FormatError(
          fmt::format("{}: cannot read at byte {}: {}", path.string(), offset, reason()));
    }
  }
}

}  // namespace

Descriptor Descriptor::open(const std::filesystem::path& path) {
  // Non-blocking, so that a pipe is rejected below instead of waited for.
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0) {
    throw ConfigError(fmt::format("data: cannot open '{}': {}", path.string(), reason()));
  }
  return Descriptor{number};
}

Descriptor::~Descriptor() {
  if (number_ >= 0) { ::close(number_); }
}

DataFile::DataFile(const std::filesystem::path& path, KeepOpen keep) : path_{kept_path(path)} {
  Descriptor descriptor = Descriptor::open(path_);
  struct stat status{};
  if (::fstat(descriptor.number(), &status) != 0) {
    throw ConfigError(fmt::format("data: cannot examine '{}': {}", path_.string(), reason()));
  }
  if (!S_ISREG(status.st_mode)) {
    throw ConfigError(fmt::format("data: '{}' is not a regular file", path_.string()));
  }
  size_ = status.st_size;
  if (keep == KeepOpen::yes) { descriptor_ = std::move(descriptor); }
}

void DataFile::read(std::int64_t first, std::span<std::byte> out) const {
  expects(first >= 0 && first <= size_ && std::ssize(out) <= size_ - first,
          "DataFile: the bytes are outside the file");
  Descriptor opened;
  if (!descriptor_.is_open()) { opened = Descriptor::open(path_); }
  const int number = descriptor_.is_open() ? descriptor_.number() : opened.number();
  while (!out.empty()) {
    const std::size_t got = read_some(path_, number, first, out);
    out = out.subspan(got);
    first += static_cast<std::int64_t>(got);
  }
}

}  // namespace tessera::data
