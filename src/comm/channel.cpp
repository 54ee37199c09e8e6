#include "tessera/comm/channel.hpp"

#include <utility>

namespace tessera {

void submit_after(Stream compute, const Channel& channel, Batch batch, Event mark) {
  if (batch.ops().empty()) { return; }
  compute.record(mark);
  channel.stream.wait_for(mark);
  channel.communicator.submit(std::move(batch), channel.stream);
}

void submit_in_order(Stream compute, const Channel& channel, Batch batch, Event mark) {
  if (batch.ops().empty()) { return; }
  submit_after(compute, channel, std::move(batch), mark);
  channel.stream.record(mark);
  compute.wait_for(mark);
}

}  // namespace tessera
