#pragma once

#include <cstddef>
#include <vector>

namespace emulated_cuda {

/// A thread's asynchronous copies to shared memory, in groups. A copy happens only when it is
/// waited for, so a read before that, or a reuse of the source, fails every time.
class LateCopies {
 public:
  /// Copies `bytes` of 16, and zeros for the rest. With 0 nothing is read.
  void issue(void* to, const void* from, int bytes);
  void close();
  /// Finishes all groups except the last `groups`.
  void finish(int groups);
  void drop();

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::vector<Copy> open_;
  std::vector<std::vector<Copy>> groups_;
};

}  // namespace emulated_cuda
