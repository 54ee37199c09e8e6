#pragma once

#include "tessera/shard/layout.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera::engine {

/// The shards of every segment that a rank keeps, given the model's mesh. Pure arithmetic.
///
/// A segment is cut into as many shards as the mesh has data ranks, whatever the mesh's shape. With
/// S ranks along `shard` and R along `replicate`, a rank keeps R neighbouring shards, the same as
/// the other ranks at its place along `shard`:
///
///   R = 2, S = 4     shards 0 1 | 2 3 | 4 5 | 6 7
///   place along      shard 0   1     2     3
class ShardPlace {
 public:
  ShardPlace(const MeshShape& mesh, int rank);

  /// S: ranks that share one copy.
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// R: shards that each of these ranks keeps.
  [[nodiscard]] int kept_shards() const noexcept { return copies_; }
  /// R * S: the shards of a segment, and the data ranks, over which gradients and losses are
  /// averaged.
  [[nodiscard]] int data_ranks() const noexcept { return ranks_ * copies_; }
  /// The range of elements that this rank keeps of a sharded segment.
  [[nodiscard]] Range kept(const SegmentLayout& segment) const noexcept;
  /// The kept shard whose squared norm this rank computes; each shard's norm is computed by one
  /// data rank.
  [[nodiscard]] int normed_shard() const noexcept { return index_ * copies_ + copy_; }
  /// The place along `tensor`, and the number of ranks along it.
  [[nodiscard]] TensorRank tensor() const noexcept { return tensor_; }
  /// The place along `pipe`.
  [[nodiscard]] int pipe() const noexcept { return pipe_; }
  /// The number of places along `pipe`.
  [[nodiscard]] int pipes() const noexcept { return pipes_; }
  /// Whether places along `pipe` have different units.
  [[nodiscard]] bool in_stages() const noexcept { return pipes_ > 1; }
  /// The number of squared norms that add up to a step's: one for each rank of the mesh.
  [[nodiscard]] int norms() const noexcept { return pipes_ * tensor_.size * data_ranks(); }
  /// The index of the first norm, by shard, of the ranks at this rank's place along `pipe` and
  /// `tensor`.
  [[nodiscard]] int first_norm() const noexcept {
    return (pipe_ * tensor_.size + tensor_.index) * data_ranks();
  }

 private:
  int ranks_;
  int copies_;
  int index_;  // along `shard`
  int copy_;   // along `replicate`
  TensorRank tensor_;
  int pipe_;
  int pipes_;
};

}  // namespace tessera::engine
