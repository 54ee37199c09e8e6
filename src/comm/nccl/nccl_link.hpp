#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/nccl_memory.hpp"
#include "comm/nccl/nccl_watchdog.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/tracker.hpp"

namespace tessera::nccl {

/// A communicator that was split off, and what NCCL has taken for it: counted until it has ended.
struct NcclSplit {
  CountedMemory taken;
  std::shared_ptr<NcclChannel> channel;
};

/// How a communicator's owner lets go of it.
enum class Owner : std::uint8_t { goes_on, unwinds };

/// What the communicators of a rank share: those of all ranks, and what is split off. The watchdog
/// goes before what it watches, and what is registered with the communicators before these end.
struct NcclLink {
  NcclLink(std::shared_ptr<TcpControlPlane> control_, Device& device_, MemoryTracker& memory_);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink();

  [[nodiscard]] std::size_t free_bytes() const;
  /// Counts what the device has lost since it had `free_before` free as what NCCL has taken.
  [[nodiscard]] CountedMemory count_taken(std::size_t free_before, std::string name) const;

  /// From the time when `channel`'s communicator, of so many ranks, has been split off ...
  void enter(const std::shared_ptr<NcclChannel>& channel, int ranks);
  /// ... to its end, which comes when its owner lets go of it. What is under way on it is waited
  /// for, until the deadline; an owner that unwinds takes it back, which ends all of the rank's
  /// communicators.
  void leave(NcclSplit split, Owner owner) noexcept;

  std::shared_ptr<TcpControlPlane> control;
  Device& device;
  MemoryTracker& memory;
  CountedMemory taken;  ///< when NCCL was started
  std::array<std::shared_ptr<NcclChannel>, 2> channels;
  std::vector<NcclSplit> in_graphs;    ///< nobody's, still to be ended
  std::shared_ptr<NcclMemory> arenas;  ///< null in a job of one
  std::unique_ptr<NcclWatchdog> watchdog;
  int next_group = 1;  ///< the first number of a group that this rank has not seen taken
};

}  // namespace tessera::nccl
