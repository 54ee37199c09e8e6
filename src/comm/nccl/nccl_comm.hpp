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

namespace tessera::nccl {

/// Thread blocks of a collective, at least and at most; 0: NCCL's own choice.
struct CtaLimits {
  int least = 0;
  int most = 0;
};

/// How NCCL is told of memory: by each rank for itself, or by all of a communicator together, as a
/// symmetric window.
enum class Registration : std::uint8_t { buffer, window };

/// CommError with NCCL's words unless `result` is ncclSuccess, or ncclInProgress, which is for
/// NcclComm::settle. `comm` may be null.
void check(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// The NCCL of this process.
[[nodiscard]] CudaLibrary loaded_library();
/// ConfigError if it is too old to split the communicator that errors call `name` off another.
void check_can_split(const std::string& name);
/// ConfigError if it cannot be held to `ctas`: too old, or the environment holds it to others.
void check_can_limit(const CtaLimits& ctas);
/// ConfigError if it has no symmetric windows, or the module was built without.
void check_can_register_windows();

/// One NCCL communicator, non-blocking: nothing that waits for a peer does so within NCCL, so that
/// every wait ends with the job.
///
/// Threads: any. Calls of NCCL are made one at a time. `abort` does not wait for one that hangs,
/// but ends it: NCCL allows for that.
class NcclComm {
 public:
  /// *Collective.* Of all ranks of the job, with an id that rank 0 has made. Blocks until all are
  /// in it.
  NcclComm(const ncclUniqueId& id, std::shared_ptr<TcpControlPlane> control, std::string name,
           CtaLimits ctas = {});
  /// Ends it together with the other ranks' unless the job has failed; within seconds in any case.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// *Collective.* One of the ranks of this one that are in group `group`, in the order of `place`.
  /// Nothing is under way on this one. Blocks until all are in it. After a CommError this one is to
  /// be aborted.
  [[nodiscard]] std::unique_ptr<NcclComm> split(int group, int place, const std::string& name);

  /// Makes `calls` on the communicator as one NCCL group, and returns when all of it is enqueued.
  /// The host waits for peers only where NCCL connects to them for the first time. Who waits, and
  /// for whom, the watchdog finds out by the deadline; here CommError comes some seconds later, and
  /// not while `device_is_behind` says that NCCL may wait for the device.
  void issue(const std::function<void(ncclComm_t)>& calls,
             const std::function<bool()>& device_is_behind);
  /// NCCL moves data straight from and to this memory from now on, until `deregister` of what it
  /// gives, or its end. Null: NCCL does not want to. CommError, or Aborted once it has ended.
  [[nodiscard]] void* register_memory(void* data, std::size_t bytes);
  /// *Collective.* The same as a symmetric window; `data` is of ncclMemAlloc. Blocks until all
  /// ranks have it.
  [[nodiscard]] void* register_window(void* data, std::size_t bytes);
  /// Of this rank alone. Waits for the communicator's end, with all that was registered, if that
  /// has begun.
  void deregister(void* handle, Registration how) noexcept;
  /// What has gone wrong within NCCL since; empty if nothing.
  [[nodiscard]] std::string fault() noexcept;
  /// What it has under way on the device ends, wherever it stands. Any thread; not the one that
  /// waits for the device. The first `why` is what later calls say, unless the job has failed.
  void abort(const std::exception_ptr& why = nullptr) noexcept;
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }

 private:
  NcclComm(std::shared_ptr<TcpControlPlane> control, std::string name, CtaLimits ctas);
  [[nodiscard]] ncclResult_t deregister_locked(void* handle, Registration how) noexcept;
  [[nodiscard]] ncclConfig_t config() const noexcept;
  [[nodiscard]] ncclResult_t state();
  void check_alive() const;
  [[nodiscard]] std::string ended_text() const;
  void settle(std::string_view call);
  void settle(std::string_view call, std::chrono::milliseconds patience,
              const std::function<bool()>& excused);
  void finish() noexcept;
  void abort_by_itself(const std::exception_ptr& why) noexcept;

  std::shared_ptr<TcpControlPlane> control_;
  const std::string name_;
  const CtaLimits ctas_;
  std::deque<void*> windows_;  // where NCCL writes them, also after a call that failed
  ncclComm_t made_ = nullptr;  // where NCCL writes it, once more when it has been started
  std::timed_mutex ending_;    // held while NCCL ends it: before, and without, the other
  std::timed_mutex calls_;     // held by who makes a call
  std::atomic<ncclComm_t> comm_ = nullptr;
  std::exception_ptr why_;  // there once it is aborted
  std::atomic<bool> aborted_ = false;
  // What is being split off. If that fails it stays: NCCL may write to it until this one has ended.
  std::unique_ptr<NcclComm> half_made_;
};

}  // namespace tessera::nccl
