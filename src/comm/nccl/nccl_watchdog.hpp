#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/nccl_comm.hpp"
#include "comm/rendezvous/job_group.hpp"
#include "device/cuda/cuda_flags.hpp"
#include "device/cuda/cuda_handle.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::nccl {

/// Fails the group with what NCCL found, unless the control path says more within a second: NCCL
/// notices lost peers too, and does not know their names.
void fail_after_control(JobGroup& group, const std::string& fault);

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

/// The batches of one channel that are under way on the device, in the order of their numbers.
///
/// Threads: the one that submits, and the watchdog.
class NcclChannel {
 public:
  NcclChannel(const ncclUniqueId& id, std::shared_ptr<JobGroup> group, CallKind kind,
              const char* name);

  [[nodiscard]] NcclComm& comm() noexcept { return comm_; }
  [[nodiscard]] CallKind kind() const noexcept { return kind_; }
  [[nodiscard]] const char* name() const noexcept { return name_; }

  /// `stream` has been given batch `sequence`, which errors call `call`. Waits while more are under
  /// way than can be watched.
  void track(std::uint64_t sequence, std::string call, cuda::CudaStream& stream);

  struct Head {
    std::uint64_t sequence;
    std::string call;
    std::chrono::milliseconds age;  ///< since it became the first
  };
  /// Forgets what has finished; the first that has not.
  [[nodiscard]] std::optional<Head> look();
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
    cuda::EventHandle end;            // of a batch that is not part of a graph
    std::optional<std::size_t> flag;  // of one that is: raised when it has been reached
  };

  [[nodiscard]] bool finished(const Pending& batch) const;
  void forget_finished_locked();
  void mark(Pending& batch, cuda::CudaStream& stream);
  [[nodiscard]] cuda::EventHandle take_spare();
  void remember(cuda::CudaStream& stream);

  // Of the submitting thread. Before the communicator, whose end is that of all that writes them.
  std::optional<cuda::PinnedFlags> flags_;  // made with the first graph
  std::size_t flagged_ = 0;                 // batches within graphs so far

  NcclComm comm_;
  const CallKind kind_;
  const char* const name_;
  std::atomic<std::uint64_t> withdrawn_ = 0;  // the end of what was taken back

  // Never held where CUDA or NCCL is given work: that may wait for what the watchdog is to end.
  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::vector<cuda::EventHandle> spare_;
  Clock::time_point head_since_;
  std::vector<std::shared_ptr<StreamReach>> streams_;  // that have been given batches
};

/// Looks after a rank's communicators on a thread of its own: nobody else may have to wait. When
/// the job has failed, NCCL says that it has, a batch is late, or another rank has ended without
/// it, then the streams end with the reason, and NCCL's communicators are aborted, so that what
/// waits on the device goes on.
class NcclWatchdog {
 public:
  NcclWatchdog(std::shared_ptr<JobGroup> group, int ordinal,
               std::array<std::shared_ptr<NcclChannel>, 2> channels);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

 private:
  void watch();
  void look_at(NcclChannel& channel);
  void look_for_faults();
  void end(const std::vector<NcclChannel*>& channels, const std::exception_ptr& error) noexcept;
  void end_all() noexcept;

  std::shared_ptr<JobGroup> group_;
  const int ordinal_;
  const std::array<std::shared_ptr<NcclChannel>, 2> channels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::nccl
