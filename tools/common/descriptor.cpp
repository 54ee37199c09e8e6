#include "tools/common/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

/// Blocks SIGPIPE for this thread; on destruction discards any that its writes raised.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    const timespec at_once{0, 0};
    if (caused) { sigtimedwait(&pipe_, nullptr, &at_once); }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  bool caused = false;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
};

}  // namespace

Descriptor::~Descriptor() {
  if (is_open()) { ::close(number_); }
}

Descriptor open_for_writing(const std::filesystem::path& path, int flags) {
  constexpr mode_t everyone = 0666;
  // A blocking open of a pipe would wait for its reader.
  Descriptor file{::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | flags, everyone)};
  if (!file.is_open()) {
    if (errno != ENXIO) { return file; }
    throw ConfigError(fmt::format(
        "{} is a pipe without a reader; start the reader first, or name a file", path.string()));
  }
  ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
  return file;
}

int write_all(const Descriptor& file, std::string_view text) {
  NoPipeSignal signal;
  while (!text.empty()) {
    const ssize_t wrote = ::write(file.get(), text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (errno != EINTR) {
      const int error = errno;
      signal.caused = error == EPIPE;
      return error;
    }
  }
  return 0;
}

}  // namespace tessera::tools
