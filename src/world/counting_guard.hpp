#pragma once

namespace tessera::world {

/// Marks the thread as a rank that only counts, for the guard's lifetime. If the thread accesses
/// memory that the rank does not have, a line on stderr says what to do, and the signal then ends
/// the process as it would have without the guard.
///
/// The process has one handler of SIGSEGV and SIGBUS. The first guard installs it, and the last one
/// restores the previous handler, which also gets the signals of other threads and causes.
class CountingGuard {
 public:
  CountingGuard();
  ~CountingGuard();
  CountingGuard(const CountingGuard&) = delete;
  CountingGuard& operator=(const CountingGuard&) = delete;
};

}  // namespace tessera::world
