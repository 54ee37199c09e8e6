#pragma once

#include <array>
#include <memory>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/instruments.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/nccl_options.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/tracker.hpp"

namespace tessera {

/// What the CUDA module makes a rank's communicators of. All of it outlives them.
struct NcclJoin {
  std::shared_ptr<TcpControlPlane> control;
  Device* device = nullptr;
  int ordinal = 0;  ///< the device's
  MemoryTracker* memory = nullptr;
  NcclOptions options = {};
  std::array<Instruments, 2> instruments = {};  ///< of the gather and the reduce channel
};
struct NcclChannels {
  std::unique_ptr<Communicator> gather;
  std::unique_ptr<Communicator> reduce;
};

/// comm/nccl: "tessera_cuda_join_nccl". *Collective.* Errors as run's.
using JoinNccl = void(const NcclJoin& join, NcclChannels& channels);

}  // namespace tessera
