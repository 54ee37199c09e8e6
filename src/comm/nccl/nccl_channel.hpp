#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/control/wait_clock.hpp"
#include "comm/nccl/nccl_comm.hpp"
#include "comm/nccl/stream_marks.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::comm::nccl {

/// A reference to a stream that stays valid when the stream ends, for a thread that does not know
/// its lifetime.
class StreamReach {
 public:
  explicit StreamReach(cuda::CudaStream& stream) noexcept
      : stream_{&stream}, capture_{stream.capture()} {}
  void end_with(const std::exception_ptr& error) noexcept;
  void forget() noexcept;
  /// The capture state of the stream's device.
  [[nodiscard]] cuda::CaptureState& capture() const noexcept { return *capture_; }

 private:
  std::mutex mutex_;
  cuda::CudaStream* stream_;
  const std::shared_ptr<cuda::CaptureState> capture_;
};

/// An NCCL communicator, and its batches in progress on the device, in the order of their numbers.
///
/// Threads: the submitting thread, and the watchdog.
class NcclChannel {
 public:
  /// `name`: the channel in errors. `series`: numbers its batches.
  NcclChannel(std::unique_ptr<NcclComm> comm, const CallSeries& series, std::string name);

  [[nodiscard]] NcclComm& comm() noexcept { return *comm_; }
  [[nodiscard]] const CallSeries& series() const noexcept { return series_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// `stream` is about to get batch `sequence`, named `call` in errors: NCCL may wait for peers
  /// before it is enqueued. Waits while more batches are in progress than can be watched.
  void announce(std::uint64_t sequence, std::string call, cuda::CudaStream& stream);
  /// Makes NCCL's calls for the batch, and returns when all of them are enqueued. Errors as in
  /// NcclComm::issue.
  void issue(const std::function<void(ncclComm_t)>& calls);
  /// The batch is enqueued on `stream`.
  void track(cuda::CudaStream& stream);
  /// The batch is not enqueued. No effect if it already is.
  void retract() noexcept;

  struct Head {
    std::uint64_t sequence;
    std::string call;
    /// How long the device has been at this batch as the first unfinished one; earlier work does
    /// not count. For a batch that is being submitted: since submission began.
    std::chrono::milliseconds age;
  };
  /// Forgets finished batches; returns the first unfinished one, or else the one being submitted.
  [[nodiscard]] std::optional<Head> look();
  /// The number of a batch whose submission takes longer than it does when all ranks have issued
  /// the batch.
  [[nodiscard]] std::optional<std::uint64_t> held();
  /// Blocks until all batches have finished. The job's failure ends the wait.
  void wait_until_idle(TcpControlPlane& control);
  /// Whether all batches have finished.
  [[nodiscard]] bool idle() { return !look(); }
  /// Whether a graph may hold some of its batches: then the channel must outlive graphs.
  [[nodiscard]] bool was_captured() const noexcept { return marks_.were_captured(); }
  /// Ends, with `error`, the streams that have batches.
  void end_streams(const std::exception_ptr& error) noexcept;
  /// Makes graphs release batches: NCCL waits for that when it ends the work in progress.
  void end_graphs(const std::exception_ptr& error) noexcept;
  /// The watchdog ends the batches in progress in the same way. If there are none, later batches
  /// are not affected.
  void withdraw() noexcept;
  [[nodiscard]] bool withdrawn(std::uint64_t sequence) const noexcept {
    return sequence < withdrawn_;
  }

 private:
  struct Pending {
    std::uint64_t sequence;
    std::string call;
    StreamMark begin;
    StreamMark end;
  };

  void forget_finished_locked();
  void wait_for_room();
  [[nodiscard]] bool busy();
  void remember(cuda::CudaStream& stream);

  // Declared before the communicator, whose end is the end of all writers of the marks.
  StreamMarks marks_;

  const std::unique_ptr<NcclComm> comm_;
  const CallSeries series_;
  const std::string name_;
  std::atomic<std::uint64_t> withdrawn_ = 0;  // the end of the withdrawn batches

  // Never held while CUDA or NCCL is given work: that may wait for work that the watchdog must end.
  std::mutex mutex_;
  std::deque<Pending> pending_;
  WaitClock clock_{std::chrono::seconds{2}};  // the watchdog reads it every few milliseconds
  WaitClock::Time head_since_;
  std::optional<Pending> announced_;
  WaitClock::Time announced_since_;
  std::vector<std::shared_ptr<StreamReach>> streams_;  // streams that have batches
};

}  // namespace tessera::comm::nccl
