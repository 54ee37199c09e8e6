#pragma once

#include <array>
#include <memory>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/instruments.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/nccl_options.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/tracker.hpp"

namespace tessera::comm {

/// What the CUDA module needs to make a rank's communicators. All of it outlives them.
struct NcclJoin {
  std::shared_ptr<TcpControlPlane> control;
  Device* device = nullptr;
  int ordinal = 0;  ///< ordinal of the device
  MemoryTracker* memory = nullptr;
  NcclOptions options = {};
  std::array<Instruments, 2> instruments = {};  ///< for the gather and the reduce channel
};
struct NcclChannels {
  std::unique_ptr<Communicator> gather;
  std::unique_ptr<Communicator> reduce;
};

/// comm/nccl: "tessera_cuda_join_nccl". *Collective.* Errors as in run.
using JoinNccl = void(const NcclJoin& join, NcclChannels& channels);

}  // namespace tessera::comm
