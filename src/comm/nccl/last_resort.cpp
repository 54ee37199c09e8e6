#include "comm/nccl/last_resort.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "comm/control/job_end.hpp"
#include "comm/control/wait_clock.hpp"

namespace tessera::comm::nccl {
namespace {

// Without the standard library's locks: a hanging thread may hold them.
void say(std::string_view words) noexcept {
  while (!words.empty()) {
    const ssize_t said = ::write(STDERR_FILENO, words.data(), words.size());
    if (said <= 0) { return; }
    words.remove_prefix(static_cast<std::size_t>(said));
  }
}

}  // namespace

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) { return known.what(); } catch (...) {
    return "an exception that is not a std::exception";
  }
}

LastResort::LastResort(std::function<std::string()> text,
                       std::chrono::milliseconds patience) noexcept
    : text_{std::move(text)} {
  try {
    thread_ = std::thread{[this, patience] { wait(patience); }};
  } catch (const std::exception&) {  // no thread left: the call may hang
  }
}

LastResort::~LastResort() {
  if (!thread_.joinable()) { return; }
  {
    const std::scoped_lock lock{mutex_};
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LastResort::wait(std::chrono::milliseconds patience) noexcept {
  std::unique_lock lock{mutex_};
  if (WaitClock{patience}.wait_for(changed_, lock, patience, [&] { return over_; })) { return; }
  try {
    say("error: " + text_() + "\n");
  } catch (const std::exception&) { say("error: NCCL does not end, so this process ends\n"); }
  std::_Exit(kCommStatus);
}

}  // namespace tessera::comm::nccl
