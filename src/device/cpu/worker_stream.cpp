#include <fmt/format.h>

#include <exception>
#include <system_error>

#include "base/process_limits.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/cpu/thread_name.hpp"
#include "tessera/base/error.hpp"

namespace tessera::device {
namespace {

std::exception_ptr run(HostTask& task) noexcept {
  try {
    task();
    return nullptr;
  } catch (...) { return std::current_exception(); }
}

}  // namespace

WorkerStream::WorkerStream(std::string_view name) {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    throw DeviceError(fmt::format("the thread of stream \"{}\" cannot be started: {}", name,
                                  no_thread_text(error)));
  }
  name_thread(thread_, name);
}

WorkerStream::~WorkerStream() {
  {
    const std::lock_guard lock{mutex_};
    closing_ = true;
  }
  queue_changed_.notify_one();
  thread_.join();
}

void WorkerStream::enqueue(HostTask task) {
  {
    const std::lock_guard lock{mutex_};
    queue_.push(std::move(task));
    ++issued_;
  }
  queue_changed_.notify_one();
}

std::uint64_t WorkerStream::issued() const {
  const std::lock_guard lock{mutex_};
  return issued_;
}

void WorkerStream::wait_for_mark(Mark mark) {
  enqueue([mark = std::move(mark)] { mark.timeline->wait(mark.ticket); });
}

HostTask WorkerStream::next() {
  std::unique_lock lock{mutex_};
  queue_changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
  return queue_.empty() ? HostTask{} : queue_.pop();
}

void WorkerStream::work() noexcept {
  bool failed = false;
  while (HostTask task = next()) {
    // After an error tasks are skipped but their tickets reached: no thread waits for ever.
    std::exception_ptr error = failed ? nullptr : run(task);
    failed = failed || error != nullptr;
    task.reset();
    timeline().reach_next(std::move(error));
  }
}

}  // namespace tessera::device
