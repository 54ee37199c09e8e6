#include "comm/mpi/mpi_channel.hpp"

namespace tessera::comm {

MpiLine::MpiLine(MpiProcess& process_, MpiKind kind_, Device& device, MemoryTracker& memory)
    : process{process_},
      kind{kind_},
      comm{kind == MpiKind::gather ? process.gather() : process.reduce()},
      workspaces{process, device, memory} {}

CallSeries MpiChannel::batches() const noexcept {
  return {line->kind == MpiKind::gather ? CallKind::gather_batch : CallKind::reduce_batch, group};
}

CallSeries MpiChannel::texts() const noexcept {
  return {line->kind == MpiKind::gather ? CallKind::gather_text : CallKind::reduce_text, group};
}

MpiRoute MpiChannel::route(std::uint64_t sequence) const noexcept {
  return {line->comm, batch_tag(number, sequence, line->process.tags()), members, rank};
}

}  // namespace tessera::comm
