#pragma once

#include "tessera/comm/communicator.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

/// A communicator with the stream that its batches are submitted on. It owns neither.
struct Channel {
  Communicator& communicator;  ///< must outlive the channel
  Stream stream;               ///< must outlive the channel
};

/// Submits `batch` on `channel` after the work that `compute` has so far. Records `mark`, and
/// does nothing for an empty batch. Collective as Communicator::submit.
void submit_after(Stream compute, const Channel& channel, Batch batch, Event mark);

/// Calls submit_after, and makes the work that `compute` gets next wait for the batch.
void submit_in_order(Stream compute, const Channel& channel, Batch batch, Event mark);

}  // namespace tessera
