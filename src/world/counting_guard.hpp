#pragma once

namespace tessera {

/// While one lives on a thread, the thread stands for a rank that only counts: touching memory that
/// the rank does not have prints what to do about it before the signal takes its course.
///
/// The handler of SIGSEGV and SIGBUS is the process's. The first guard installs it, the last one
/// puts back what was there before; signals of other threads and causes go there at once.
class CountingGuard {
 public:
  CountingGuard();
  ~CountingGuard();
  CountingGuard(const CountingGuard&) = delete;
  CountingGuard& operator=(const CountingGuard&) = delete;
};

}  // namespace tessera
