#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "device/cpu/host_task.hpp"
#include "device/cpu/task_queue.hpp"
#include "device/cpu/timeline.hpp"
#include "device/cpu/worker_pool.hpp"
#include "device/stream_state.hpp"

namespace tessera::device {

/// A stream of host tasks. Common to both kinds: events are marks on a timeline.
class CpuStream : public StreamState {
 public:
  virtual void enqueue(HostTask task) = 0;

  void record(EventState& event) final;
  void wait_for(EventState& event) final;
  void wait() final { timeline_->wait(issued()); }
  void rethrow() final { timeline_->rethrow(); }
  void call(std::function<void()> work) final { enqueue(HostTask{std::move(work)}); }
  void tell_time(std::function<void(std::int64_t)> told) final;
  [[nodiscard]] void* native() noexcept final { return nullptr; }

  /// The threads that loops of its tasks may use: not owned, null if only the stream's own.
  [[nodiscard]] WorkerPool* pool() const noexcept { return pool_; }
  void use(WorkerPool* pool) noexcept { pool_ = pool; }

 protected:
  CpuStream() : timeline_{std::make_shared<Timeline>()} {}

  /// The ticket of the last task enqueued.
  [[nodiscard]] virtual std::uint64_t issued() const = 0;
  /// `mark` was recorded and may not be passed yet.
  virtual void wait_for_mark(Mark mark) = 0;

  [[nodiscard]] Timeline& timeline() noexcept { return *timeline_; }

 private:
  std::shared_ptr<Timeline> timeline_;
  WorkerPool* pool_ = nullptr;
};

/// Runs tasks at once on the thread that enqueues them. Only a failure takes a ticket: successful
/// work is done before any thread can ask.
class CallerStream final : public CpuStream {
 public:
  void enqueue(HostTask task) override;

 private:
  [[nodiscard]] std::uint64_t issued() const override { return issued_; }
  void wait_for_mark(Mark mark) override;
  void end_with_current_exception() noexcept;

  std::uint64_t issued_ = 0;
};

/// Runs tasks in order on a thread of its own.
class WorkerStream final : public CpuStream {
 public:
  /// `name` is shown by debuggers; the system keeps its first 15 bytes. Throws DeviceError if the
  /// system has no thread left.
  explicit WorkerStream(std::string_view name);
  ~WorkerStream() override;

  void enqueue(HostTask task) override;
  /// `listener` is called for every task that is done or skipped. Call this before the first task.
  void tell(std::shared_ptr<TimelineListener> listener) { timeline().tell(std::move(listener)); }

 private:
  [[nodiscard]] std::uint64_t issued() const override;
  void wait_for_mark(Mark mark) override;
  /// The next task; an empty one when the stream is being destroyed and has no more.
  [[nodiscard]] HostTask next();
  void work() noexcept;

  mutable std::mutex mutex_;
  std::condition_variable queue_changed_;
  TaskQueue queue_;
  std::uint64_t issued_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace tessera::device
