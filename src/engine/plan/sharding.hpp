#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan/shard_place.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::engine {

/// How a model's state is sharded over its mesh, and the channels that move it:
///
///   {{"replicate", 2}, {"shard", 4}}     ranks 0 1 2 3 | 4 5 6 7     gather and reduce-scatter
///                                        ranks 0 4, 1 5, 2 6, 3 7    all-reduce the scattered part
///
/// Strategies that shard nothing have one channel for each direction, over all data ranks.
class Sharding : public ShardPlace {
 public:
  /// *Collective.* Uses the mesh of `options`. Throws ConfigError if hybrid has neither mesh nor
  /// shard_group and S does not follow from the machines: they hold different numbers of ranks, or
  /// their ranks are not contiguous.
  [[nodiscard]] static Sharding make(World& world, const ModelOptions& options);

  /// The channel that gathers parameters.
  [[nodiscard]] Channel gather() const noexcept { return gather_; }
  /// The channel that reduces gradients first.
  [[nodiscard]] Channel reduce() const noexcept { return reduce_; }
  /// The channel of the second reduction, on the stream of `reduce`; empty if there is none.
  [[nodiscard]] const std::optional<Channel>& across() const noexcept { return across_; }
  /// *Collective.* The ranks along `replicate`, which keep the same shards, in the order of the
  /// shards whose norms they compute. On the stream of the reduce channel; in training it makes no
  /// new channel.
  [[nodiscard]] Channel replicas() const { return mesh_.along("replicate").reduce(); }
  /// *Collective.* The ranks along `tensor`, on the stream of the reduce channel.
  [[nodiscard]] Channel along_tensor() const { return mesh_.along("tensor").reduce(); }
  /// *Collective.* The ranks that differ only along `pipe` and are at one of `places` there, in
  /// order, on the stream of the reduce channel. A rank at none of them gets a channel of its own.
  [[nodiscard]] Channel along_pipe(const std::vector<int>& places) const;

 private:
  Sharding(const Mesh& mesh, Strategy strategy, Purpose purpose);

  Mesh mesh_;
  Channel gather_;
  Channel reduce_;
  std::optional<Channel> across_;
};

/// A rank's places along the dimensions that divide a model.
struct ModelPlace {
  TensorRank tensor;
  int pipe = 0;
};
/// The position of `rank` on the mesh of `options`, after check_mesh.
[[nodiscard]] ModelPlace model_place(const ModelOptions& options, int rank);
/// The number of shards of each segment. `options` have passed check_mesh.
[[nodiscard]] int data_ranks(const ModelOptions& options, int ranks);

}  // namespace tessera::engine
