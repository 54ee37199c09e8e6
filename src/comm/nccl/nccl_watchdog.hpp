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

namespace tessera::comm::nccl {

/// Fails the job with NCCL's error, unless the control path reports more within a second: NCCL
/// notices lost peers too, but does not know their names.
void fail_after_control(TcpControlPlane& control, const std::string& fault);

/// Watches a rank's communicators on a thread of its own, so that no other thread has to wait. It
/// acts when the job has failed, NCCL reports an error, a batch is late (also one that NCCL has not
/// enqueued because a peer is missing), another rank has ended without it, or work in progress was
/// withdrawn. Then it ends the streams with the reason, and aborts all of the rank's NCCL
/// communicators together, so that work waiting on the device goes on. If that does not return, the
/// process ends (LastResort).
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
  /// Stops watching the channel. If the job has failed, or `channel` has work in progress, all
  /// communicators are ended by then.
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
  bool ended_ = false;  // whether all were ended because the job has failed
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm::nccl
