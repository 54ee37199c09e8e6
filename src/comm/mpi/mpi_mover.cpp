#include "comm/mpi/mpi_mover.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "comm/pieces.hpp"
#include "comm/staging.hpp"
#include "kernels/combine/combine.hpp"
#include "tessera/base/math.hpp"

namespace tessera::comm {
namespace {

// Long enough to hide a message's latency, far below the 2^31 bytes that MPI can count.
constexpr std::size_t kMoveBytes = std::size_t{4} << 20U;
// Below this size each rank sends all of its data to all ranks, which add it themselves: one round
// of messages instead of two.
constexpr std::size_t kSmallBytes = 4096;

void copy(View to, ConstView from) noexcept {
  if (from.elems > 0 && to.data != from.data) { std::memcpy(to.data, from.data, from.bytes()); }
}

template <class Transfer>
std::size_t length_of(const Transfer& transfer, std::size_t step, std::size_t step_bytes) noexcept {
  const std::size_t begin = std::min(step * step_bytes, transfer.bytes);
  return std::min(step_bytes, transfer.bytes - begin);
}

}  // namespace

MpiMover::MpiMover(MpiWorkspace& workspace, const MpiRoute& route, const MpiWait& wait)
    : work_{workspace},
      route_{route},
      wait_{wait},
      rank_{route.rank},
      ranks_{static_cast<int>(route.members.size())},
      block_bytes_{mpi_reduce_block_bytes(workspace.scratch.bytes(), ranks_)} {}

void MpiMover::run(const Batch& batch) {
  for (const CommOp& any : batch.ops()) {
    work_.outs.clear();
    work_.ins.clear();
    std::visit([this](const auto& op) { move(op); }, any);
  }
}

void MpiMover::move(const AllGather& op) {
  const std::int64_t n = op.shard.elems;
  for_each_peer([&](int peer) {
    receive_from(peer, op.full.slice(peer * n, n));
    send_to(peer, op.shard);
  });
  copy(op.full.slice(rank_ * n, n), op.shard);
  transfer();
}

void MpiMover::move(const ReduceScatter& op) {
  const std::int64_t n = op.shard.elems;
  for_each_peer([&](int peer) {
    add_from(peer, op.shard);
    send_to(peer, op.full.slice(peer * n, n));
  });
  transfer_and_add(op.shard, op.full.slice(rank_ * n, n), op.op);
}

void MpiMover::move(const AllReduce& op) {
  if (op.data.bytes() <= kSmallBytes) {
    for_each_peer([&](int peer) {
      add_from(peer, op.data);
      send_to(peer, op.data);
    });
    return transfer_and_add(op.data, op.data, op.op);
  }

  const View own = piece(op.data, rank_, ranks_);
  for_each_peer([&](int peer) {
    add_from(peer, own);
    send_to(peer, piece(op.data, peer, ranks_));
  });
  transfer_and_add(own, own, op.op);

  work_.outs.clear();
  work_.ins.clear();
  for_each_peer([&](int peer) {
    receive_from(peer, piece(op.data, peer, ranks_));
    send_to(peer, own);
  });
  transfer();
}

void MpiMover::move(const Broadcast& op) {
  if (rank_ == op.root) {
    for_each_peer([&](int peer) { send_to(peer, op.data); });
  } else {
    receive_from(op.root, op.data);
  }
  transfer();
}

void MpiMover::move(const Reduce& op) {
  if (rank_ == op.root) {
    for_each_peer([&](int peer) { add_from(peer, op.data); });
    transfer_and_add(op.data, op.data, op.op);
  } else {
    send_to(op.root, op.data);
    steps(block_bytes_, [](std::size_t) {});  // as long as what the root adds at a time
  }
}

void MpiMover::move(const Gather& op) {
  const std::int64_t n = op.part.elems;
  if (rank_ == op.root) {
    for_each_peer([&](int peer) { receive_from(peer, op.full.slice(peer * n, n)); });
    copy(op.full.slice(rank_ * n, n), op.part);
  } else {
    send_to(op.root, op.part);
  }
  transfer();
}

// Each rank starts at its right neighbour, so that not all send to the same rank at once.
template <class Do>
void MpiMover::for_each_peer(const Do& act) const {
  for (int k = 1; k < ranks_; ++k) { act((rank_ + k) % ranks_); }
}

void MpiMover::send_to(int peer, ConstView data) {
  work_.outs.push_back({peer, static_cast<const std::byte*>(data.data), data.bytes()});
}

void MpiMover::receive_from(int peer, View data) {
  work_.ins.push_back({peer, static_cast<std::byte*>(data.data), data.bytes()});
}

void MpiMover::add_from(int peer, ConstView like) {
  work_.ins.push_back({peer, nullptr, like.bytes()});
}

void MpiMover::transfer() {
  steps(kMoveBytes, [](std::size_t) {});
}

void MpiMover::transfer_and_add(View target, ConstView own, ReduceOp op) {
  const auto per_step = static_cast<std::int64_t>(block_bytes_ / size_of(target.dtype));
  const auto sources = std::span{work_.sources}.first(static_cast<std::size_t>(ranks_));
  const auto add = [&](std::size_t step) {
    const std::int64_t first = static_cast<std::int64_t>(step) * per_step;
    if (first >= target.elems) { return; }  // others have longer pieces
    const std::int64_t count = std::min(per_step, target.elems - first);
    sources[static_cast<std::size_t>(rank_)] = own.slice(first, count).data;
    for (std::size_t i = 0; i < work_.ins.size(); ++i) {
      sources[static_cast<std::size_t>(work_.ins[i].peer)] = scratch(step, i);
    }
    kernels::reduce_in_order(target.slice(first, count).data, sources, count, target.dtype, op);
  };
  if (ranks_ == 1) {  // nothing to wait for, and no blocks
    sources[0] = own.data;
    return kernels::reduce_in_order(target.data, sources, target.elems, target.dtype, op);
  }
  steps(block_bytes_, add);
}

/// Step k moves bytes [k, k + 1) * step_bytes of every transfer. When `after_step` runs, the
/// messages of its step are complete, and those of the next step are in transit.
template <class AfterStep>
void MpiMover::steps(std::size_t step_bytes, const AfterStep& after_step) {
  std::size_t longest = 0;
  for (const auto& out : work_.outs) { longest = std::max(longest, out.bytes); }
  for (const auto& in : work_.ins) { longest = std::max(longest, in.bytes); }
  const std::size_t count = ceil_div(longest, step_bytes);
  if (count > 0) { post(0, step_bytes); }
  for (std::size_t step = 0; step < count; ++step) {
    if (step + 1 < count) { post(step + 1, step_bytes); }
    wait_.until_done(work_.requests[step % 2]);
    after_step(step);
  }
}

void MpiMover::post(std::size_t step, std::size_t step_bytes) {
  MpiRequests& requests = work_.requests[step % 2];
  const std::size_t offset = step * step_bytes;
  const MpiCalls calls{wait_.process};
  const auto member = [&](int peer) { return route_.members[static_cast<std::size_t>(peer)]; };
  for (std::size_t i = 0; i < work_.ins.size(); ++i) {
    const auto& in = work_.ins[i];
    const std::size_t bytes = length_of(in, step, step_bytes);
    if (bytes == 0) { continue; }
    std::byte* const to = in.data == nullptr ? scratch(step, i) : in.data + offset;
    requests.receive(route_.comm, to, bytes, member(in.peer), route_.tag);
  }
  for (const auto& out : work_.outs) {
    const std::size_t bytes = length_of(out, step, step_bytes);
    if (bytes == 0) { continue; }
    requests.send(route_.comm, out.data + offset, bytes, member(out.peer), route_.tag);
  }
}

std::byte* MpiMover::scratch(std::size_t step, std::size_t in) const noexcept {
  const std::size_t half = step % 2 * static_cast<std::size_t>(ranks_ - 1);
  return static_cast<std::byte*>(work_.scratch.data()) + (half + in) * block_bytes_;
}

}  // namespace tessera::comm
