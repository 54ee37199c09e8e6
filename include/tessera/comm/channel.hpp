#pragma once

#include "tessera/comm/communicator.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

/// A communicator with the stream that its batches are submitted on. It owns neither.
struct Channel {
  Communicator& communicator;  ///< must outlive the channel
  Stream stream;               ///< must outlive the channel
};

}  // namespace tessera
