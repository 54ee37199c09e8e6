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

namespace tessera::comm::nccl {

/// A communicator that was split off, and the memory that NCCL took for it: counted until it has
/// ended.
struct NcclSplit {
  CountedMemory taken;
  std::shared_ptr<NcclChannel> channel;
};

/// How a communicator's owner releases it.
enum class Owner : std::uint8_t { goes_on, unwinds };

/// What the communicators of a rank share: those of all ranks, and those split off. The watchdog
/// ends before the communicators that it watches, and registrations end before their communicators.
struct NcclLink {
  NcclLink(std::shared_ptr<TcpControlPlane> control_, Device& device_, MemoryTracker& memory_);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink();

  [[nodiscard]] std::size_t free_bytes() const;
  /// Counts, as taken by NCCL, what the device has lost since it had `free_before` bytes free.
  [[nodiscard]] CountedMemory count_taken(std::size_t free_before, std::string name) const;

  /// From the time when `channel`'s communicator, of `ranks` ranks, was split off ...
  void enter(const std::shared_ptr<NcclChannel>& channel, int ranks);
  /// ... to its end, when its owner releases it. Work in progress is waited for, until the
  /// deadline; an owner that unwinds withdraws it, which ends all of the rank's communicators.
  void leave(NcclSplit split, Owner owner) noexcept;

  std::shared_ptr<TcpControlPlane> control;
  Device& device;
  MemoryTracker& memory;
  CountedMemory taken;  ///< when NCCL was started
  std::array<std::shared_ptr<NcclChannel>, 2> channels;
  std::vector<NcclSplit> in_graphs;    ///< without an owner, still to be ended
  std::shared_ptr<NcclMemory> arenas;  ///< null in a job of one
  std::unique_ptr<NcclWatchdog> watchdog;
  int next_group = 1;  ///< the lowest group number that this rank has not seen used
};

}  // namespace tessera::comm::nccl
