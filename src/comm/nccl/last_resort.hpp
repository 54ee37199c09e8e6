#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::comm::nccl {

/// How long ncclCommAbort may take once the job has failed: it takes milliseconds.
inline constexpr std::chrono::milliseconds kAbortTime{6000};

/// How long it may take. If the job has not failed, it may have to wait for much unrelated work of
/// the device: as long as a collective may take.
[[nodiscard]] inline std::chrono::milliseconds abort_time(bool failed,
                                                          std::chrono::milliseconds deadline) {
  return failed ? kAbortTime : std::max(kAbortTime, deadline);
}

/// The text of `error`.
[[nodiscard]] std::string reason_of(const std::exception_ptr& error);

/// While it lives, a call is running that may never return, and that nothing within the process can
/// end. After `patience` the process ends with the status of a communication failure, and `text` on
/// standard error. Nothing is destroyed and no output is flushed: that could hang as well.
/// docs/decisions/0015.
class LastResort {
 public:
  LastResort(std::function<std::string()> text, std::chrono::milliseconds patience) noexcept;
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;
  ~LastResort();

 private:
  void wait(std::chrono::milliseconds patience) noexcept;

  std::function<std::string()> text_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // none if no thread could be created
};

}  // namespace tessera::comm::nccl
