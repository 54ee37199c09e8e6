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

/// Converts the device's time to the host's clock. Threads: any.
class CudaClock {
 public:
  /// An event that was reached, and the time.
  struct Moment {
    cudaEvent_t event;
    std::int64_t ns;
  };
  /// Found at the first call, on a stream without other work; the device is the calling thread's.
  [[nodiscard]] Moment origin();

 private:
  std::mutex mutex_;
  EventHandle event_;
  std::int64_t ns_ = 0;
};

/// A place in a stream whose time is requested.
struct TimeMark {
  EventHandle event;
  std::function<void(std::int64_t)> told;
  std::uint64_t graph = 0;  ///< graph in which it was recorded; 0: none
};

/// The places of one stream whose times are requested, in order: Stream::tell_time.
///
/// An event's time is computed from the previous event's: CUDA returns the milliseconds between two
/// events as a float, which would be too coarse over a long run. Threads: any.
class CudaTimes {
 public:
  /// A mark whose event will be recorded next.
  [[nodiscard]] TimeMark mark(std::function<void(std::int64_t)> told);
  /// The mark was recorded, or launched with its graph.
  void add(TimeMark mark);
  /// Reports every mark that the device has reached, in order. Marks of a graph are reported when
  /// it has ended, since CUDA does not define their events until then.
  void tell(CudaClock& clock, const CaptureState& graphs);

 private:
  std::mutex mutex_;
  std::deque<TimeMark> marks_;
  std::vector<EventHandle> spare_;
  EventHandle last_;  // last one reported
  std::int64_t last_ns_ = 0;
};

}  // namespace tessera::cuda
