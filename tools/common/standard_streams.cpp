#include "tools/common/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <new>
#include <string>

#include "tessera/base/shown.hpp"

namespace tessera::tools {
namespace {

/// While it lives, this thread's write to a pipe without a reader gives an error instead of a
/// signal.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() noexcept {
    sigset_t pending;
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;
  ~WithoutBrokenPipes() {
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&broken_pipe_, nullptr, &at_once) < 0 && errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t broken_pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace

// open returns the lowest free number, so this starts at 0.
void open_closed_descriptors() noexcept {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) < 0 && errno == EBADF) { (void)::open("/dev/null", O_RDWR); }
  }
}

void tell(std::string_view text) noexcept {
  const WithoutBrokenPipes quietly;
  try {
    const std::string line = printable(text);
    (void)std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (const std::bad_alloc&) { (void)std::fputs("out of memory\n", stderr); }
  (void)std::fflush(stderr);
}

}  // namespace tessera::tools
