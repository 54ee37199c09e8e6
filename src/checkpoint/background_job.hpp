#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <system_error>
#include <utility>

#include "base/process_limits.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {

/// Work on a thread of its own. The destructor waits for its end.
class BackgroundJob {
 public:
  /// A thread that cannot be started counts as a failure of the work.
  explicit BackgroundJob(std::function<void()> work) : end_{begin(std::move(work))} {}
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Waits until the work has ended.
  void wait() const { end_.wait(); }
  /// Waits for its end, at most `longest`.
  void wait(std::chrono::milliseconds longest) const { (void)end_.wait_for(longest); }
  [[nodiscard]] bool has_ended() const {
    return end_.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
  }
  /// The exception that it threw, or null. Requires that it has ended.
  [[nodiscard]] std::exception_ptr failure() const noexcept {
    try {
      end_.get();
    } catch (...) { return std::current_exception(); }
    return nullptr;
  }

 private:
  [[nodiscard]] static std::shared_future<void> begin(std::function<void()> work) {
    try {
      return std::async(std::launch::async, std::move(work)).share();
    } catch (const std::system_error& error) {
      std::promise<void> failed;
      failed.set_exception(std::make_exception_ptr(
          Error{"a thread beside the steps cannot be started: " + no_thread_text(error)}));
      return failed.get_future().share();
    }
  }

  std::shared_future<void> end_;
};

}  // namespace tessera::checkpoint
