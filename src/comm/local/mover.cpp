#include "comm/local/mover.hpp"

#include <algorithm>
#include <cstring>

#include "comm/pieces.hpp"
#include "comm/stream_copy.hpp"
#include "kernels/combine/combine.hpp"

namespace tessera::comm {
namespace {

/// The same entry of every rank's batch.
class Peers {
 public:
  Peers(const std::vector<Visit>& visits, std::size_t entry) noexcept
      : visits_{&visits}, entry_{entry} {}

  [[nodiscard]] int size() const noexcept { return static_cast<int>(visits_->size()); }
  /// The entry as the type of this rank's own entry: meetings open only if the entries agree.
  template <class Op>
  [[nodiscard]] const Op& as(int rank) const noexcept {
    return *std::get_if<Op>(&(*visits_)[static_cast<std::size_t>(rank)].batch->ops()[entry_]);
  }

 private:
  const std::vector<Visit>* visits_;
  std::size_t entry_;
};

class HostHands final : public Hands {
 public:
  void copy(void* to, ConstView from, std::size_t whole) noexcept override {
    if (from.elems == 0 || to == from.data) { return; }
    if (whole >= kStreamFrom) {
      stream_copy(to, from.data, from.bytes());
    } else {
      std::memcpy(to, from.data, from.bytes());
    }
  }
  void reduce(View to, std::span<const void* const> from, ReduceOp op) noexcept override {
    kernels::reduce_in_order(to.data, from, to.elems, to.dtype, op);
  }
};

/// The first half of one entry, for `rank` of `peers`.
struct First {
  Peers peers;
  int rank;
  Hands& hands;
  std::vector<const void*>& sources;
  const Tally& tally;

  void operator()(const AllGather& own) const {
    const std::int64_t n = own.shard.elems;
    // Each rank starts at its right neighbour, so that not all read the same memory at once.
    for (int k = 1; k <= peers.size(); ++k) {
      const int from = (rank + k) % peers.size();
      hands.copy(own.full.slice(from * n, n).data, peers.as<AllGather>(from).shard,
                 own.full.bytes());
      tally.add(from, rank, own.shard.bytes());
    }
  }

  void operator()(const ReduceScatter& own) const {
    const std::int64_t n = own.shard.elems;
    for (int r = 0; r < peers.size(); ++r) {
      sources[static_cast<std::size_t>(r)] =
          peers.as<ReduceScatter>(r).full.slice(rank * n, n).data;
      tally.add(r, rank, own.shard.bytes());
    }
    hands.reduce(own.shard, sources, own.op);
  }

  // Reduces into this rank's own piece, which no other rank reads in this half.
  void operator()(const AllReduce& own) const { reduce_piece(own, own.data); }

  void operator()(const Broadcast& own) const {
    if (rank == own.root) { return; }
    hands.copy(own.data.data, peers.as<Broadcast>(own.root).data, own.data.bytes());
    tally.add(own.root, rank, own.data.bytes());
  }

  // Each rank reduces one piece, straight into the root's buffer.
  void operator()(const Reduce& own) const {
    reduce_piece(own, peers.as<Reduce>(own.root).data);
    tally.add(rank, own.root, piece(own.data, rank, peers.size()).bytes());
  }

  void operator()(const Gather& own) const {
    const Gather& root = peers.as<Gather>(own.root);
    hands.copy(root.full.slice(rank * own.part.elems, own.part.elems).data, own.part,
               root.full.bytes());
    tally.add(rank, own.root, own.part.bytes());
  }

  template <class Op>
  void reduce_piece(const Op& own, View to) const {
    const View result = piece(to, rank, peers.size());
    for (int r = 0; r < peers.size(); ++r) {
      sources[static_cast<std::size_t>(r)] = piece(peers.as<Op>(r).data, rank, peers.size()).data;
      tally.add(r, rank, result.bytes());
    }
    hands.reduce(result, sources, own.op);
  }
};

}  // namespace

Hands& host_hands() noexcept {
  static HostHands hands;  // it has no state
  return hands;
}

Mover::Mover(LocalRanks& ranks, const LocalChannel& channel, int rank, Hands& hands)
    : rank_{rank},
      tally_{ranks.traffic(), &channel},
      hands_{&hands},
      sources_(static_cast<std::size_t>(channel.size())) {}

void Mover::first(const Batch& batch, const std::vector<Visit>& visits) {
  for (std::size_t entry = 0; entry < batch.ops().size(); ++entry) {
    std::visit(First{Peers{visits, entry}, rank_, *hands_, sources_, tally_}, batch.ops()[entry]);
  }
}

void Mover::second(const Batch& batch, const std::vector<Visit>& visits) {
  for (std::size_t entry = 0; entry < batch.ops().size(); ++entry) {
    const auto* own = std::get_if<AllReduce>(&batch.ops()[entry]);
    if (own == nullptr) { continue; }
    const Peers peers{visits, entry};
    for (int k = 1; k < peers.size(); ++k) {
      const int from = (rank_ + k) % peers.size();
      const View part = piece(own->data, from, peers.size());
      hands_->copy(part.data, piece(peers.as<AllReduce>(from).data, from, peers.size()),
                   own->data.bytes());
      tally_.add(from, rank_, part.bytes());
    }
  }
}

bool Mover::has_second(const Batch& batch) noexcept {
  return std::any_of(batch.ops().begin(), batch.ops().end(),
                     [](const CommOp& op) { return std::holds_alternative<AllReduce>(op); });
}

}  // namespace tessera::comm
