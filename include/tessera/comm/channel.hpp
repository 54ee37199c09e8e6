#pragma once

#include "tessera/comm/communicator.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

/// A communicator with the stream that drives it.
struct Channel {
  Communicator& communicator;
  Stream stream;
};

}  // namespace tessera
