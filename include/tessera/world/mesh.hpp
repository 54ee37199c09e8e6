#pragma once

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/channel.hpp"
#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The ranks of a mesh that differ from this rank in some of its dimensions alone, with channels
/// that reach them. Borrows the World, and is valid as long as it.
class SubMesh {
 public:
  /// How many ranks they are.
  [[nodiscard]] int size() const noexcept { return groups_.size(); }
  /// This rank's place among them.
  [[nodiscard]] int index() const noexcept { return groups_.index_of(world_->rank()); }
  /// The ranks, as the job counts them, in ascending order.
  [[nodiscard]] std::vector<int> ranks() const { return groups_.members(world_->rank()); }

  /// *Collective over all ranks of the World.* The communicator of these ranks that is split off
  /// World::gather_channel or World::reduce_channel, on that channel's stream. The World keeps it,
  /// and returns the same one to every mesh that asks for the same ranks; where these are all
  /// ranks it is the World's own. Errors call it "shard gather", "shard reduce". Throws as
  /// World::split.
  [[nodiscard]] Channel gather() const { return split(world_->gather_channel(), "gather"); }
  [[nodiscard]] Channel reduce() const { return split(world_->reduce_channel(), "reduce"); }

 private:
  friend class Mesh;
  SubMesh(World& world, MeshGroups groups) : world_{&world}, groups_{std::move(groups)} {}
  [[nodiscard]] Channel split(const Channel& whole, std::string_view channel) const;

  World* world_;
  MeshGroups groups_;
};

/// The ranks of a World, arranged along named dimensions (see MeshShape). Every rank makes it with
/// the same dimensions. It borrows the World, holds nothing of its own, and can be made again.
///
///   Mesh mesh{world, {{"replicate", 2}, {"shard", 4}}};
///   const Channel shards = mesh.along("shard").reduce();
class Mesh {
 public:
  /// ConfigError as MeshShape, and if it has another number of ranks than `world`.
  Mesh(World& world, std::vector<MeshDim> dims) : Mesh{world, MeshShape{std::move(dims)}} {}
  Mesh(World& world, MeshShape shape);

  [[nodiscard]] World& world() const noexcept { return *world_; }
  [[nodiscard]] const MeshShape& shape() const noexcept { return shape_; }
  /// How many ranks lie along `name`; 1 if the mesh does not name it.
  [[nodiscard]] int size(std::string_view name) const { return shape_.size(name); }
  /// Where this rank lies along `name`.
  [[nodiscard]] int index(std::string_view name) const {
    return shape_.index(name, world_->rank());
  }

  /// The ranks that differ from this one along `names` alone: along("shard"),
  /// along("replicate", "tensor"). The order of names has no meaning. ConfigError for a name that
  /// is no dimension, or is given twice.
  template <std::convertible_to<std::string_view>... Names>
  [[nodiscard]] SubMesh along(const Names&... names) const {
    return {*world_, shape_.along({std::string_view{names}...})};
  }

 private:
  World* world_;
  MeshShape shape_;
};

}  // namespace tessera
