#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan/shard_place.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::engine {

/// How a model's states are cut over its mesh, and the channels over which they move:
///
///   {{"replicate", 2}, {"shard", 4}}     ranks 0 1 2 3 | 4 5 6 7     gather and reduce-scatter
///                                        ranks 0 4, 1 5, 2 6, 3 7    all-reduce what is scattered
///
/// Strategies that shard nothing have one channel for each direction, over all data ranks.
class Sharding : public ShardPlace {
 public:
  /// *Collective.* On the mesh of `options`. ConfigError if hybrid is given neither mesh nor
  /// shard_group and the ranks' machines do not tell S: they hold different numbers of ranks, or
  /// ranks that are not side by side.
  [[nodiscard]] static Sharding make(World& world, const ModelOptions& options);

  /// Where parameters come from.
  [[nodiscard]] Channel gather() const noexcept { return gather_; }
  /// Where gradients go first.
  [[nodiscard]] Channel reduce() const noexcept { return reduce_; }
  /// Where gradients go then, on the stream of `reduce`; empty if they do not.
  [[nodiscard]] const std::optional<Channel>& across() const noexcept { return across_; }
  /// *Collective.* The ranks along `replicate`, in the order of the shards whose norms they
  /// compute: they keep the same shards. On the stream of the reduce channel; while training it
  /// makes no new one.
  [[nodiscard]] Channel replicas() const { return mesh_.along("replicate").reduce(); }
  /// *Collective.* The ranks along `tensor`, on the stream of the reduce channel.
  [[nodiscard]] Channel along_tensor() const { return mesh_.along("tensor").reduce(); }
  /// *Collective.* The ranks that differ along `pipe` alone and are at one of `places` there, in
  /// their order, on the stream of the reduce channel. A rank that is at none of them is given a
  /// channel of its own.
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
/// Where `rank` is on the mesh of `options`, which have passed check_mesh.
[[nodiscard]] ModelPlace model_place(const ModelOptions& options, int rank);
/// Into how many shards a segment of the model is cut. `options` have passed check_mesh.
[[nodiscard]] int data_ranks(const ModelOptions& options, int ranks);
/// What of the mesh was given: " in groups of 4", " on mesh replicate 2 x shard 4"; empty if
/// nothing.
[[nodiscard]] std::string describe_mesh(const ModelOptions& options);

}  // namespace tessera::engine
