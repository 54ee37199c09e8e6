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
#include "comm/nccl/nccl_comm.hpp"
#include "comm/nccl/stream_marks.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::nccl {

/// Reaches a stream for as long as it lives, from a thread that does not know for how long.
class StreamReach {
 public:
  explicit StreamReach(cuda::CudaStream& stream) noexcept
      : stream_{&stream}, capture_{stream.capture()} {}
  void end_with(const std::exception_ptr& error) noexcept;
  void forget() noexcept;
  /// Of the stream's device.
  [[nodiscard]] cuda::CaptureState& capture() const noexcept { return *capture_; }

 private:
  std::mutex mutex_;
  cuda::CudaStream* stream_;
  const std::shared_ptr<cuda::CaptureState> capture_;
};

/// A communicator of NCCL's, and the batches that are under way over it on the device, in the order
/// of their numbers.
///
/// Threads: the one that submits, and the watchdog.
class NcclChannel {
 public:
  /// Errors call it `name`; its batches are those of `series`.
  NcclChannel(std::unique_ptr<NcclComm> comm, const CallSeries& series, std::string name);

  [[nodiscard]] NcclComm& comm() noexcept { return *comm_; }
  [[nodiscard]] const CallSeries& series() const noexcept { return series_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// `stream` is about to be given batch `sequence`, which errors call `call`: NCCL may wait for
  /// peers before it has it. Waits while more are under way than can be watched.
  void announce(std::uint64_t sequence, std::string call, cuda::CudaStream& stream);
  /// Makes its calls, and returns when all of it is enqueued. Errors as NcclComm::issue's.
  void issue(const std::function<void(ncclComm_t)>& calls);
  /// `stream` has it.
  void track(cuda::CudaStream& stream);
  /// `stream` does not get it. Without effect if it has it.
  void retract() noexcept;

  struct Head {
    std::uint64_t sequence;
    std::string call;
    /// Since the device has come to it and it is the first: what the device was behind before does
    /// not count. Of one that is being submitted: since that began.
    std::chrono::milliseconds age;
  };
  /// Forgets what has finished; the first that has not, or else the one that is being submitted.
  [[nodiscard]] std::optional<Head> look();
  /// The number of a batch that is being submitted, for longer than that takes where all ranks have
  /// come to it.
  [[nodiscard]] std::optional<std::uint64_t> held();
  /// Blocks until all has finished. The job's failure ends that.
  void wait_until_idle(TcpControlPlane& control);
  /// Whether all has finished.
  [[nodiscard]] bool idle() { return !look(); }
  /// Whether a graph may hold some of its batches: it must not end before graphs do.
  [[nodiscard]] bool was_captured() const noexcept { return marks_.were_captured(); }
  /// Streams that have been given batches end with `error`.
  void end_streams(const std::exception_ptr& error) noexcept;
  /// Graphs let go of batches: NCCL waits for that as it ends what is under way.
  void end_graphs(const std::exception_ptr& error) noexcept;
  /// What is under way ends in the same way, by the watchdog's hand; what is submitted later does
  /// not, if that has been nothing.
  void withdraw() noexcept;
  [[nodiscard]] bool withdrawn(std::uint64_t sequence) const noexcept {
    return sequence < withdrawn_;
  }

 private:
  using Clock = std::chrono::steady_clock;

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

  // Before the communicator, whose end is that of all that writes to them.
  StreamMarks marks_;

  const std::unique_ptr<NcclComm> comm_;
  const CallSeries series_;
  const std::string name_;
  std::atomic<std::uint64_t> withdrawn_ = 0;  // the end of what was taken back

  // Never held where CUDA or NCCL is given work: that may wait for what the watchdog is to end.
  std::mutex mutex_;
  std::deque<Pending> pending_;
  Clock::time_point head_since_;
  std::optional<Pending> announced_;
  Clock::time_point announced_since_;
  std::vector<std::shared_ptr<StreamReach>> streams_;  // that have been given batches
};

}  // namespace tessera::nccl
