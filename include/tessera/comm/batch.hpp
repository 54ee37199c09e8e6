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

/// The arguments of Batch::all_gather.
struct AllGather {
  ConstView shard;  ///< this rank's part
  View full;        ///< all parts, in rank order
};
/// The arguments of Batch::reduce_scatter.
struct ReduceScatter {
  ConstView full;  ///< this rank's summands, for all ranks
  View shard;      ///< the reduced part that this rank keeps
  ReduceOp op;     ///< how elements are combined
};
/// The arguments of Batch::all_reduce.
struct AllReduce {
  View data;    ///< this rank's summands, replaced by the reduction
  ReduceOp op;  ///< how elements are combined
};
/// The arguments of Batch::broadcast.
struct Broadcast {
  View data;  ///< read on the root, written on the others
  int root;   ///< the rank in the group that sends, from 0
};
/// The arguments of Batch::reduce.
struct Reduce {
  View data;    ///< this rank's summands, replaced by the reduction on the root
  ReduceOp op;  ///< how elements are combined
  int root;     ///< the rank in the group that receives, from 0
};
/// The arguments of Batch::gather.
struct Gather {
  ConstView part;  ///< this rank's part
  View full;       ///< all parts, in rank order; ignored except on the root
  int root;        ///< the rank in the group that receives, from 0
};
/// One entry of a Batch.
using CommOp = std::variant<AllGather, ReduceScatter, AllReduce, Broadcast, Reduce, Gather>;

/// Returns "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce" or "gather".
[[nodiscard]] std::string_view name_of(const CommOp& op) noexcept;
/// Returns the number of elements of the whole tensor: `full.elems` or `data.elems`, and
/// `part.elems * ranks` for a gather.
[[nodiscard]] std::int64_t full_elems(const CommOp& op, int ranks) noexcept;
/// Returns the dtype of the elements that the operation moves.
[[nodiscard]] DType dtype_of(const CommOp& op) noexcept;

/// Returns the bytes that rank `rank` of N = `ranks` sends for `op` by the bandwidth-optimal
/// algorithm, rounded down. With n bytes in the whole tensor: all_gather and reduce_scatter
/// n(N-1)/N, all_reduce 2n(N-1)/N, broadcast n(N-1) on the root, reduce n and gather n/N on all
/// ranks but the root; otherwise 0. Tables of a strategy's traffic are sums of these.
[[nodiscard]] std::size_t sent_bytes(const CommOp& op, int rank, int ranks) noexcept;

/// Collectives to be issued as one unit. It is plain data: Communicator::submit checks and runs it.
///
/// Every rank of the group builds the same list: same operations, dtypes, sizes, roots and label.
/// The operations of a batch run in any order: none may read or write what another writes. A batch
/// owns none of the memory that its views point to. Sums are formed in rank order in fp32 (in fp64
/// for fp64), whatever the dtype of the data. NCCL adds in its own order, the same in every run.
class Batch {
 public:
  /// Makes an empty batch. `label` names its purpose in errors and traces: "gather h.0".
  explicit Batch(std::string label) : label_{std::move(label)} {}

  /// Concatenates every rank's `shard` into `full`, in rank order. On all ranks
  /// `full.elems == shard.elems * size`. `shard` may be this rank's own part of `full` (in place);
  /// any other overlap is refused.
  Batch& all_gather(ConstView shard, View full);

  /// Reduces `full` over the ranks. With n = shard.elems and full.elems == n * size, rank r keeps
  /// elements [r*n, (r+1)*n) in `shard`. `shard` may be this rank's own part of `full`, whose other
  /// elements are then undefined afterwards. Any other overlap is refused.
  Batch& reduce_scatter(ConstView full, View shard, ReduceOp op = ReduceOp::sum);

  /// Replaces `data` on all ranks by the reduction of every rank's `data`. Any size is legal.
  Batch& all_reduce(View data, ReduceOp op = ReduceOp::sum);

  /// Copies the root's `data` into `data` on all ranks.
  Batch& broadcast(View data, int root);

  /// Replaces `data` on the root by the reduction of every rank's `data`. On other ranks `data` is
  /// unchanged.
  Batch& reduce(View data, ReduceOp op, int root);

  /// Concatenates every rank's `part` into `full` on the root, in rank order. On the root
  /// `full.elems == part.elems * size`, and `part` may be the root's own part of `full`; any other
  /// overlap is refused.
  Batch& gather(ConstView part, View full, int root);

  /// Returns the label, which names the batch's purpose.
  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  /// Returns the entries, in the order in which they were added. They are valid until the batch
  /// changes.
  [[nodiscard]] std::span<const CommOp> ops() const noexcept { return ops_; }

 private:
  std::string label_;
  std::vector<CommOp> ops_;
};

}  // namespace tessera
