#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The ranks among which one copy of what a strategy shards is cut, and those that keep the same
/// part of another copy. All ranks, and none, but under hybrid:
///
///   N = 8, S = 4     ranks 0 1 2 3 | 4 5 6 7     shard groups: gather and reduce-scatter inside
///                    ranks 0 4, 1 5, 2 6, 3 7    replicas: all-reduce what has been scattered
///
/// The layout's N shards stay as they are: a rank keeps N/S of them, which lie side by side.
class ShardGroup {
 public:
  /// *Collective* under hybrid. A model for inference reduces nothing, and gets no channels for it.
  /// ConfigError if its size is not given and the ranks' machines do not tell: they hold different
  /// numbers of them, or not side by side.
  static ShardGroup make(World& world, const ModelOptions& options);

  /// S: ranks that share one copy.
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// N/S: shards that each of them keeps.
  [[nodiscard]] int kept_shards() const noexcept { return kept_shards_; }
  /// This rank's, in a segment.
  [[nodiscard]] Range kept(const SegmentLayout& segment) const noexcept;
  /// The one of them whose squared norm this rank computes, so that each is computed once in the
  /// job.
  [[nodiscard]] int normed_shard() const noexcept;

  /// Where the group's parameters come from, ...
  [[nodiscard]] Channel gather() const noexcept { return gather_; }
  /// ... where its gradients go, ...
  [[nodiscard]] Channel reduce() const noexcept { return reduce_; }
  /// ... and where they go on to, on the same stream; empty if they do not.
  [[nodiscard]] const std::optional<Channel>& across() const noexcept { return across_; }

 private:
  ShardGroup(World& world, int ranks, Purpose purpose);
  [[nodiscard]] Channel in_group(World& world, Channel whole, const char* name) const;

  int ranks_;
  int kept_shards_;
  int index_;  // of this rank in its group
  int group_;
  Channel gather_;
  Channel reduce_;
  std::optional<Channel> across_;
};

}  // namespace tessera::engine
