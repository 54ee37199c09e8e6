#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "device/cuda_library.hpp"

namespace tessera::comm::nccl {

/// The least and most thread blocks of a collective; 0: NCCL's own choice.
struct CtaLimits {
  int least = 0;
  int most = 0;
};

/// How memory is registered with NCCL: by each rank for itself, or by all ranks of a communicator
/// together, as a symmetric window.
enum class Registration : std::uint8_t { buffer, window };

/// Throws CommError with NCCL's text unless `result` is ncclSuccess, or ncclInProgress, which
/// NcclComm::settle handles. `comm` may be null.
void check(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// The NCCL library loaded in this process.
[[nodiscard]] device::CudaLibrary loaded_library();
/// Throws ConfigError if it is too old to split the communicator named `name` in errors.
void check_can_split(const std::string& name);
/// Throws ConfigError if `ctas` cannot be applied: the library is too old, or the environment sets
/// other limits.
void check_can_limit(const CtaLimits& ctas);
/// Throws ConfigError if it has no symmetric windows, or the module was built without them.
void check_can_register_windows();

/// One NCCL communicator, non-blocking: nothing waits for a peer within NCCL, so that every wait
/// ends with the job.
///
/// Threads: any. Calls of NCCL are made one at a time. `abort` does not wait for a call that hangs,
/// but ends it: NCCL allows that.
class NcclComm {
 public:
  /// *Collective.* A communicator of all ranks of the job, with an id that rank 0 made. Blocks
  /// until all have joined.
  NcclComm(const ncclUniqueId& id, std::shared_ptr<TcpControlPlane> control, std::string name,
           CtaLimits ctas = {});
  /// Ends it together with the other ranks' unless the job has failed; within seconds in any case.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// *Collective.* Splits off the ranks in group `group`, in the order of `place`. Requires that
  /// this communicator is idle. Blocks until all have joined. After a CommError this communicator
  /// must be aborted.
  [[nodiscard]] std::unique_ptr<NcclComm> split(int group, int place, const std::string& name);

  /// Makes `calls` on the communicator as one NCCL group, and returns when all of it is enqueued.
  /// The host waits for peers only where NCCL first connects to them. The watchdog finds by the
  /// deadline which rank waits for which; here CommError comes some seconds later, and not while
  /// `device_is_behind` says that NCCL may be waiting for the device.
  void issue(const std::function<void(ncclComm_t)>& calls,
             const std::function<bool()>& device_is_behind);
  /// Registers memory, so that NCCL moves data straight from and to it until `deregister` of the
  /// result, or the communicator's end. Null if NCCL declines. Throws CommError, or Aborted once
  /// the communicator has ended.
  [[nodiscard]] void* register_memory(void* data, std::size_t bytes);
  /// *Collective.* The same as a symmetric window; `data` comes from ncclMemAlloc. Blocks until all
  /// ranks have registered it.
  [[nodiscard]] void* register_window(void* data, std::size_t bytes);
  /// Affects this rank only. If the communicator has begun to end, with all its registrations,
  /// waits for that.
  void deregister(void* handle, Registration how) noexcept;
  /// NCCL's asynchronous error; empty if there is none.
  [[nodiscard]] std::string fault() noexcept;
  /// Ends its work on the device, wherever it stands. Any thread may call it, except the thread
  /// that waits for the device. Later calls report the first `why`, unless the job has failed.
  void abort(const std::exception_ptr& why = nullptr) noexcept;
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }

 private:
  NcclComm(std::shared_ptr<TcpControlPlane> control, std::string name, CtaLimits ctas);
  [[nodiscard]] ncclResult_t deregister_locked(void* handle, Registration how) noexcept;
  [[nodiscard]] ncclConfig_t config() const noexcept;
  [[nodiscard]] ncclResult_t state();
  void check_alive() const;
  [[nodiscard]] std::string ended_text() const;
  /// Waits a moment for the failure that made a peer end its communicator; throws it.
  void await_cause() const;
  void settle(std::string_view call);
  void settle(std::string_view call, std::chrono::milliseconds patience,
              const std::function<bool()>& excused);
  void finish() noexcept;
  void abort_by_itself(const std::exception_ptr& why) noexcept;

  std::shared_ptr<TcpControlPlane> control_;
  const std::string name_;
  const CtaLimits ctas_;
  std::deque<void*> windows_;  // where NCCL writes them, even after a failed call
  ncclComm_t made_ = nullptr;  // where NCCL writes it, again once it has started
  std::timed_mutex ending_;  // held while NCCL ends it: taken before the other lock, or without it
  std::timed_mutex calls_;   // held during a call
  std::atomic<ncclComm_t> comm_ = nullptr;
  std::exception_ptr why_;  // set once it is aborted
  std::atomic<bool> aborted_ = false;
  // The communicator being split off. It stays if that fails: NCCL may write to it until this one
  // has ended.
  std::unique_ptr<NcclComm> half_made_;
};

}  // namespace tessera::comm::nccl
