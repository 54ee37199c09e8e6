#pragma once

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/channel.hpp"
#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The ranks of a mesh that differ from this rank only along some of its dimensions, with channels
/// that reach them. A SubMesh borrows the World and is valid as long as the World lives.
class SubMesh {
 public:
  /// Returns the number of these ranks.
  [[nodiscard]] int size() const noexcept { return groups_.size(); }
  /// Returns this rank's place among them, from 0 to size() - 1.
  [[nodiscard]] int index() const noexcept { return groups_.index_of(world_->rank()); }
  /// Returns the ranks' numbers in the job, in ascending order.
  [[nodiscard]] std::vector<int> ranks() const { return groups_.members(world_->rank()); }

  /// *Collective over all ranks of the World.* Returns a channel of these ranks: a communicator
  /// that is split off World::gather_channel, on that channel's stream. The World keeps it, and
  /// returns the same one to every mesh that asks for the same ranks. If these are all ranks, it is
  /// the World's own channel. Errors call it "shard gather". Throws as World::split.
  [[nodiscard]] Channel gather() const { return split(world_->gather_channel(), "gather"); }
  /// *Collective over all ranks of the World.* Returns a channel of these ranks that is split off
  /// World::reduce_channel, as `gather` does. Errors call it "shard reduce".
  [[nodiscard]] Channel reduce() const { return split(world_->reduce_channel(), "reduce"); }
  /// *Collective over all ranks of the World.* Returns a channel of these ranks with a stream of
  /// its own, so that its batches wait neither for gathers nor for reductions: see
  /// World::split_beside. Errors call it "shard `purpose`".
  [[nodiscard]] Channel beside(std::string_view purpose) const;

 private:
  friend class Mesh;
  SubMesh(World& world, MeshGroups groups) : world_{&world}, groups_{std::move(groups)} {}
  [[nodiscard]] Channel split(const Channel& whole, std::string_view channel) const;
  [[nodiscard]] GroupOf group_of() const;

  World* world_;
  MeshGroups groups_;
};

/// The ranks of a World, arranged along named dimensions (see MeshShape). Every rank makes it with
/// the same dimensions. A Mesh borrows the World and owns no communicator, so that making another
/// one is cheap.
///
///     Mesh mesh{world, {{"replicate", 2}, {"shard", 4}}};
///     const Channel shards = mesh.along("shard").reduce();
class Mesh {
 public:
  /// Arranges the ranks of `world`. Throws ConfigError as MeshShape does, and unless the mesh has
  /// as many ranks as `world`.
  Mesh(World& world, std::vector<MeshDim> dims) : Mesh{world, MeshShape{std::move(dims)}} {}
  /// Arranges the ranks of `world`. Throws ConfigError unless `shape` has as many ranks as `world`.
  Mesh(World& world, MeshShape shape);

  /// Returns the World of the mesh.
  [[nodiscard]] World& world() const noexcept { return *world_; }
  /// Returns the dimensions of the mesh.
  [[nodiscard]] const MeshShape& shape() const noexcept { return shape_; }
  /// Returns the number of ranks along `name`, or 1 if the mesh does not name it. Throws
  /// ConfigError for a name that is no dimension.
  [[nodiscard]] int size(std::string_view name) const { return shape_.size(name); }
  /// Returns this rank's place along `name`, from 0 to size(name) - 1. Throws ConfigError as
  /// `size`.
  [[nodiscard]] int index(std::string_view name) const {
    return shape_.index(name, world_->rank());
  }

  /// Returns the ranks that differ from this one only along `names`: along("shard"),
  /// along("replicate", "tensor"). The order of names has no meaning. Throws ConfigError for a name
  /// that is no dimension or is given twice.
  template <std::convertible_to<std::string_view>... Names>
  [[nodiscard]] SubMesh along(const Names&... names) const {
    return {*world_, shape_.along({std::string_view{names}...})};
  }

 private:
  World* world_;
  MeshShape shape_;
};

}  // namespace tessera
