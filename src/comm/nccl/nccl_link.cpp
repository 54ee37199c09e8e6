#include "comm/nccl/nccl_link.hpp"

#include <exception>
#include <new>
#include <utility>

namespace tessera::comm::nccl {
namespace {

/// Waits for work in progress. The job's failure ends the wait, and then all communicators; so does
/// an error of the wait itself.
void complete(NcclChannel& channel, TcpControlPlane& control) noexcept {
  try {
    channel.wait_until_idle(control);
  } catch (const std::exception&) {  // the control plane reports it
  }
}

}  // namespace

NcclLink::NcclLink(std::shared_ptr<TcpControlPlane> control_, Device& device_,
                   MemoryTracker& memory_)
    : control{std::move(control_)}, device{device_}, memory{memory_} {}

NcclLink::~NcclLink() {
  watchdog.reset();
  if (arenas) { arenas->end(); }
}

std::size_t NcclLink::free_bytes() const {
  return device.memory().value_or(DeviceMemory{}).free_bytes;
}

CountedMemory NcclLink::count_taken(std::size_t free_before, std::string name) const {
  const std::size_t after = free_bytes();
  // Other processes may share the device: memory that they free in this time is not NCCL's.
  return memory.register_memory(Category::communicator,
                                free_before > after ? free_before - after : 0, std::move(name));
}

void NcclLink::enter(const std::shared_ptr<NcclChannel>& channel, int ranks) {
  watchdog->add(channel);
  if (arenas && ranks > 1) { arenas->add(channel->comm()); }
}

void NcclLink::leave(NcclSplit split, Owner owner) noexcept {
  const std::shared_ptr<NcclChannel> channel = split.channel;
  if (channel->was_captured()) {
    if (owner == Owner::unwinds) { channel->withdraw(); }
    try {
      return in_graphs.push_back(std::move(split));
    } catch (const std::bad_alloc&) {  // it ends now, and may wait for a graph
    }
  }
  if (owner == Owner::goes_on) { complete(*channel, *control); }
  watchdog->remove(*channel);
  if (arenas) { arenas->remove(channel->comm()); }
}

}  // namespace tessera::comm::nccl
