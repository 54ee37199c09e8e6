#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/nccl/nccl_channel.hpp"

namespace tessera::nccl {

/// Fails the job with what NCCL found, unless the control path says more within a second: NCCL
/// notices lost peers too, and does not know their names.
void fail_after_control(TcpControlPlane& control, const std::string& fault);

/// Looks after a rank's communicators on a thread of its own: nobody else may have to wait. When
/// the job has failed, NCCL says that it has, a batch is late (also one that NCCL has not enqueued,
/// as it connects to a peer that has not come), another rank has ended without it, or what is under
/// way was withdrawn, then the streams end with the reason, and NCCL's communicators are aborted,
/// so that what waits on the device goes on: all of the rank's together. Where that does not
/// return, the process ends (LastResort).
///
/// Threads: any.
class NcclWatchdog {
 public:
  using Channels = std::vector<std::shared_ptr<NcclChannel>>;

  NcclWatchdog(std::shared_ptr<TcpControlPlane> control, int ordinal, Channels channels);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  void add(std::shared_ptr<NcclChannel> channel);
  /// It is not looked at any more. Where the job has failed, or `channel` has work under way, all
  /// have been ended then.
  void remove(NcclChannel& channel) noexcept;

 private:
  [[nodiscard]] std::string call_under_way();
  void watch();
  [[nodiscard]] bool look_at_all();
  void look_at(const std::shared_ptr<NcclChannel>& channel);
  void look_for_faults();
  void release(const NcclChannel& channel) noexcept;
  void end_withdrawn() noexcept;
  void end_failed() noexcept;
  void end_all(const std::exception_ptr& error) noexcept;

  std::shared_ptr<TcpControlPlane> control_;
  const int ordinal_;
  std::timed_mutex looking_;  // held while channels are looked at, or ended
  Channels channels_;
  bool ended_ = false;  // all, as the job has failed
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::nccl
