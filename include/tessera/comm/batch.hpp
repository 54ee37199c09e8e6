#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/reduce_op.hpp"
#include "tessera/base/view.hpp"

namespace tessera {

struct AllGather {
  ConstView shard;
  View full;
};
struct ReduceScatter {
  ConstView full;
  View shard;
  ReduceOp op;
};
struct AllReduce {
  View data;
  ReduceOp op;
};
struct Broadcast {
  View data;
  int root;
};
struct Reduce {
  View data;
  ReduceOp op;
  int root;
};
struct Gather {
  ConstView part;
  View full;  ///< looked at on the root only
  int root;
};
using CommOp = std::variant<AllGather, ReduceScatter, AllReduce, Broadcast, Reduce, Gather>;

/// "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "gather".
[[nodiscard]] std::string_view name_of(const CommOp& op) noexcept;
/// Elements of the whole tensor that the operation moves: `full.elems` or `data.elems`;
/// for a gather `part.elems * ranks`.
[[nodiscard]] std::int64_t full_elems(const CommOp& op, int ranks) noexcept;
[[nodiscard]] DType dtype_of(const CommOp& op) noexcept;

/// Bytes that rank `rank` of `ranks` sends for `op` by the bandwidth-optimal algorithm, with
/// n bytes in the whole tensor: all_gather and reduce_scatter n(N-1)/N, all_reduce 2n(N-1)/N,
/// broadcast n(N-1) on the root (all of it passes through the root), reduce n off the root,
/// gather n/N off the root; otherwise 0. Rounded down. The strategies' traffic table counts this.
[[nodiscard]] std::size_t sent_bytes(const CommOp& op, int rank, int ranks) noexcept;

/// Collectives to be issued as one unit. Plain data: build it, look at it, submit it.
///
/// Every rank of the group builds the same list: same operations, dtypes, sizes, roots, label.
/// The operations are not ordered among each other: what one writes, no other reads or writes.
/// Additions are made in rank order in fp32 (fp64 for fp64), whatever the dtype on the wire
/// (NCCL: in its own order, the same from run to run).
class Batch {
 public:
  /// `label` says what the batch is for ("gather h.0") in errors and traces.
  explicit Batch(std::string label) : label_{std::move(label)} {}

  /// Concatenates every rank's `shard` into `full`, in rank order.
  /// `full.elems == shard.elems * size`, same on all ranks. `shard` may be this rank's own part of
  /// `full` (in place); no other overlap.
  Batch& all_gather(ConstView shard, View full);

  /// Reduces `full` over the ranks; rank r keeps elements [r*n, (r+1)*n) in `shard`,
  /// n = shard.elems, full.elems == n * size. `shard` may be this rank's own part of `full`; the
  /// rest of `full` is then undefined afterwards. No other overlap.
  Batch& reduce_scatter(ConstView full, View shard, ReduceOp op = ReduceOp::sum);

  /// Every rank ends with the reduction of all `data`. Any size.
  Batch& all_reduce(View data, ReduceOp op = ReduceOp::sum);

  /// Every rank ends with the root's `data`.
  Batch& broadcast(View data, int root);

  /// The root ends with the reduction of all `data`; elsewhere `data` is unchanged.
  Batch& reduce(View data, ReduceOp op, int root);

  /// The root's `full` ends as the concatenation of all `part`s in rank order;
  /// on the root `full.elems == part.elems * size`. There `part` may be the root's own part of
  /// `full`; no other overlap.
  Batch& gather(ConstView part, View full, int root);

  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] std::span<const CommOp> ops() const noexcept { return ops_; }

 private:
  std::string label_;
  std::vector<CommOp> ops_;
};

}  // namespace tessera
