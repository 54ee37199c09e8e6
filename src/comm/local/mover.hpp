#pragma once

#include <span>
#include <vector>

#include "comm/control/local/local_ranks.hpp"
#include "tessera/base/dtype.hpp"

namespace tessera::comm {

/// Counts the bytes between the ranks of a channel, if they are counted.
struct Tally {
  TrafficCounts* counts = nullptr;
  const LocalChannel* channel = nullptr;

  void add(int from, int to, std::size_t bytes) const noexcept {
    if (counts == nullptr || from == to) { return; }
    counts->add(channel->job_rank(from), channel->job_rank(to), bytes);
  }
};

/// How a rank's share is done: at once by the calling thread, or by work enqueued on a device.
class Hands {
 public:
  Hands() = default;
  virtual ~Hands() = default;
  Hands(const Hands&) = delete;
  Hands& operator=(const Hands&) = delete;

  /// Copies a part of a result of `whole` bytes. Does nothing if it is already there.
  virtual void copy(void* to, ConstView from, std::size_t whole) = 0;
  /// The same as reduce_in_order.
  virtual void reduce(View to, std::span<const void* const> from, ReduceOp op) = 0;
};

/// The host's hands. They throw nothing.
[[nodiscard]] Hands& host_hands() noexcept;

/// One rank's share of the work of an open meeting: it reads the peers' buffers directly.
///
///   first()  --all ranks--  second()  --all ranks--
///
/// In each half a rank only writes what no other rank reads or writes in that half.
class Mover {
 public:
  /// Rank `rank` of one of the channels of `ranks`.
  Mover(LocalRanks& ranks, const LocalChannel& channel, int rank, Hands& hands);

  /// Throws any exception of the hands.
  void first(const Batch& batch, const std::vector<Visit>& visits);
  void second(const Batch& batch, const std::vector<Visit>& visits);
  /// Whether `second` has work to do; if so, ranks meet between the halves.
  [[nodiscard]] static bool has_second(const Batch& batch) noexcept;

 private:
  int rank_;
  Tally tally_;
  Hands* hands_;
  std::vector<const void*> sources_;  // allocated beforehand: nothing is allocated while data moves
};

}  // namespace tessera::comm
