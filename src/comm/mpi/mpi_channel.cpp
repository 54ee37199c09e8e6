#include "comm/mpi/mpi_channel.hpp"

namespace tessera {

MpiLine::MpiLine(MpiProcess& process, MpiKind kind_, Device& device, MemoryTracker& memory)
    : kind{kind_},
      comm{kind == MpiKind::gather ? process.gather() : process.reduce()},
      workspaces{process, device, memory} {}

MpiRoute MpiChannel::batch_route(std::uint64_t sequence) const noexcept {
  return {line->comm, batch_tag(number, sequence, control->process().tags()), members, rank};
}

MpiRoute MpiChannel::text_route(std::uint64_t sequence) const noexcept {
  MpiProcess& process = control->process();
  return {process.control(), text_tag(line->kind, number, sequence, process.tags()), members, rank};
}

}  // namespace tessera
