#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "device/cuda/cuda_handle.hpp"

namespace tessera::cuda {

class CaptureState;

/// What the device's time is by the host's clock. Threads: any.
class CudaClock {
 public:
  /// An event that has been reached, and when that was.
  struct Moment {
    cudaEvent_t event;
    std::int64_t ns;
  };
  /// Found at the first call, on a stream that has no other work; the device is the calling
  /// thread's.
  [[nodiscard]] Moment origin();

 private:
  std::mutex mutex_;
  EventHandle event_;
  std::int64_t ns_ = 0;
};

/// A place in a stream whose time is wanted.
struct TimeMark {
  EventHandle event;
  std::function<void(std::int64_t)> told;
  std::uint64_t graph = 0;  ///< in which it was recorded; 0: in none
};

/// The places of one stream whose times are wanted, in order: Stream::tell_time.
///
/// An event's time is taken from that of the one before: CUDA tells the milliseconds between two
/// events as a float, which over a long run would be too coarse. Threads: any.
class CudaTimes {
 public:
  /// A mark whose event is to be recorded next.
  [[nodiscard]] TimeMark mark(std::function<void(std::int64_t)> told);
  /// It has been recorded, or launched with its graph.
  void add(TimeMark mark);
  /// Tells of all that the device has come to, from the first on: of marks of a graph when it has
  /// ended, since CUDA does not say what their events stand for until then.
  void tell(CudaClock& clock, const CaptureState& graphs);

 private:
  std::mutex mutex_;
  std::deque<TimeMark> marks_;
  std::vector<EventHandle> spare_;
  EventHandle last_;  // told of last
  std::int64_t last_ns_ = 0;
};

}  // namespace tessera::cuda
