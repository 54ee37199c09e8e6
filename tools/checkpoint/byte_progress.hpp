#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tessera::tools {

/// Shows on a terminal how many of `bytes` are done, as a bar that is redrawn; prints nothing
/// elsewhere.
///
/// Threads: one at a time.
class ByteProgress {
 public:
  ByteProgress(std::FILE* file, std::string title, std::uint64_t bytes);
  /// Removes the bar.
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  /// Adds `bytes` to the count.
  void add(std::uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  std::FILE* file_;
  std::string title_;
  std::uint64_t all_;
  std::uint64_t done_ = 0;
  bool terminal_;
  bool open_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_{};  // long ago
};

}  // namespace tessera::tools
