#include "tools/common/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

constexpr off_t kMostBytes = off_t{64} << 20;

class OpenFile {
 public:
  // Opened without blocking, so that a pipe is refused instead of waited for.
  explicit OpenFile(const std::string& path)
      : number_{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (number_ >= 0) { ::close(number_); }
  }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

[[noreturn]] void refuse_unreadable(std::string_view option, const std::string& path) {
  throw ConfigError(
      fmt::format("{}: cannot read {}: {}", option, path, std::generic_category().message(errno)));
}

}  // namespace

std::string read_input(std::string_view option, const std::string& path) {
  const OpenFile file{path};
  struct stat status{};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) {
    refuse_unreadable(option, path);
  }
  if (!S_ISREG(status.st_mode)) {
    throw ConfigError(fmt::format("{}: {} is not a regular file", option, path));
  }
  if (status.st_size > kMostBytes) {
    throw ConfigError(
        fmt::format("{}: {} has {} bytes, more than the limit of {}; name another file", option,
                    path, status.st_size, kMostBytes));
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.number(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) { continue; }
    if (got < 0) { refuse_unreadable(option, path); }
    if (got == 0) { break; }  // it was truncated while being read
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace tessera::tools
