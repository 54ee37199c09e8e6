#include "tessera/trace/recorder.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace tessera::trace {

std::int64_t now_ns() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

std::uint64_t this_thread() noexcept {
  // The number that debuggers and /proc show. Kept, as asking the system for it takes a call.
  thread_local const auto id = static_cast<std::uint64_t>(gettid());
  return id;
}

void Recorder::add(Record record) {
  record.thread = this_thread();
  if (record.begin_ns == 0 && record.end_ns == 0) {
    record.begin_ns = now_ns();
    record.end_ns = record.begin_ns;
  } else if (record.end_ns == 0) {
    record.end_ns = now_ns();
  }
  const std::lock_guard lock{mutex_};
  if (!stopped_) { records_.push_back(std::move(record)); }
}

void Recorder::stop() {
  const std::lock_guard lock{mutex_};
  stopped_ = true;
}

std::vector<Record> Recorder::records() const {
  const std::lock_guard lock{mutex_};
  return records_;
}

void Recorder::clear() {
  const std::lock_guard lock{mutex_};
  records_.clear();
}

}  // namespace tessera::trace
