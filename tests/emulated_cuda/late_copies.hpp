#pragma once

#include <cstddef>
#include <vector>

namespace emulated_cuda {

/// A thread's asynchronous copies to shared memory, in groups. None is made before it is waited
/// for, so that what reads too early, or reuses what is still to be copied, goes wrong every time.
class LateCopies {
 public:
  /// `bytes` of 16; zeros beyond. With 0 nothing is read.
  void issue(void* to, const void* from, int bytes);
  void close();
  /// All groups but the last `groups`.
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
