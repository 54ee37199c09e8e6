#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace tessera::comm {

/// The pauses between looks at what has arrived: yields at first, then sleeps of 20 us that grow to
/// 320 us, since ranks may share cores.
class MpiPause {
 public:
  void pause() noexcept {
    if (looks_ < kYields) {
      ++looks_;
      std::this_thread::yield();
      return;
    }
    const int doublings = std::min((looks_++ - kYields) / kSameSleeps, kDoublings);
    std::this_thread::sleep_for(kSleep * (1 << doublings));
  }
  /// Something has moved: the next looks are quick again.
  void restart() noexcept { looks_ = 0; }

 private:
  static constexpr int kYields = 50;
  static constexpr int kSameSleeps = 20;
  static constexpr int kDoublings = 4;
  static constexpr std::chrono::microseconds kSleep{20};

  int looks_ = 0;
};

}  // namespace tessera::comm
