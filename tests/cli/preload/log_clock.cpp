// Preloaded into the command: a steady clock that advances 20 seconds per line of the file that the
// variable LOG_CLOCK names, so that minutes pass in a short test.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace {

constexpr time_t kSecondsOfALine = 20;

time_t lines_of(const char* path) {
  const int file = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) { return 0; }
  time_t lines = 0;
  char text[4096];
  for (ssize_t got = 0; (got = ::read(file, text, sizeof text)) > 0;) {
    lines += std::count(text, text + got, '\n');
  }
  ::close(file);
  return lines;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto failed = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (failed != 0 || clock != CLOCK_MONOTONIC) { return failed; }
  time->tv_sec += kSecondsOfALine * lines_of(std::getenv("LOG_CLOCK"));
  return 0;
}
