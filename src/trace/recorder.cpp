#include "tessera/trace/recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tessera::trace {
namespace {

bool is_memory(Kind kind) noexcept {
  return kind == Kind::allocate || kind == Kind::release || kind == Kind::use ||
         kind == Kind::unuse;
}

bool opposite(Kind a, Kind b) noexcept {
  const auto are = [&](Kind one, Kind other) {
    return (a == one && b == other) || (a == other && b == one);
  };
  return are(Kind::allocate, Kind::release) || are(Kind::use, Kind::unuse);
}

bool cancels(const Record& a, const Record& b) noexcept {
  return opposite(a.kind, b.kind) && a.bytes == b.bytes && a.what == b.what && a.unit == b.unit;
}

}  // namespace

std::int64_t now_ns() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

std::uint64_t this_thread() noexcept {
  // The thread number shown by debuggers and /proc. Cached, as querying it takes a system call.
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
  std::vector<Record> all;
  all.reserve(held_.size() + records_.size());
  all.insert(all.end(), held_.begin(), held_.end());
  all.insert(all.end(), records_.begin(), records_.end());
  return all;
}

void Recorder::clear() {
  const std::lock_guard lock{mutex_};
  records_.clear();
  held_.clear();
  steps_.clear();
  ended_ = 0;
}

void Recorder::keep_last(int steps) {
  const std::lock_guard lock{mutex_};
  keep_ = static_cast<std::size_t>(std::max(steps, 0));
}

void Recorder::end_step() {
  const std::lock_guard lock{mutex_};
  if (keep_ == 0 || stopped_) { return; }
  steps_.push_back(records_.size() - ended_);
  ended_ = records_.size();
  while (steps_.size() > keep_) { drop_first_step(); }
}

void Recorder::drop_first_step() {
  const std::size_t count = steps_.front();
  held_.reserve(held_.size() + count);  // nothing below can fail
  for (std::size_t i = 0; i < count; ++i) {
    Record& record = records_.front();
    const auto undone = std::find_if(held_.rbegin(), held_.rend(), [&](const Record& earlier) {
      return cancels(earlier, record);
    });
    if (undone != held_.rend()) {
      held_.erase(std::next(undone).base());
    } else if (is_memory(record.kind)) {
      held_.push_back(std::move(record));
    }
    records_.pop_front();
  }
  steps_.pop_front();
  ended_ -= count;
}

}  // namespace tessera::trace
