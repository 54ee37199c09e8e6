#include "engine/plan/sharding.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/rules/options.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/machines.hpp"

namespace tessera::engine {
namespace {

MeshShape mesh_of(World& world, const ModelOptions& options) {
  if (!options.mesh.empty()) { return MeshShape{options.mesh}; }
  const bool asks_machines = options.strategy == Strategy::hybrid && options.shard_group == 0;
  return tessera::mesh_of(
      options.strategy, world.size(),
      asks_machines ? shard_group_of(machines_of_ranks(world)) : options.shard_group);
}

bool shards(Strategy strategy) noexcept {
  return traits_of(strategy).optimizer == Holding::sharded;
}

SubMesh sharing(const Mesh& mesh, Strategy strategy) {
  return shards(strategy) ? mesh.along("shard") : mesh.along("replicate", "shard");
}

}  // namespace

Sharding Sharding::make(World& world, const ModelOptions& options) {
  return {Mesh{world, engine::mesh_of(world, options)}, options.strategy, options.purpose};
}

Sharding::Sharding(const Mesh& mesh, Strategy strategy, Purpose purpose)
    : ShardPlace{mesh.shape(), mesh.world().rank()},
      mesh_{mesh},
      gather_{sharing(mesh, strategy).gather()},
      reduce_{purpose == Purpose::training ? sharing(mesh, strategy).reduce()
                                           : mesh.world().reduce_channel()} {
  if (!shards(strategy) || kept_shards() == 1 || purpose != Purpose::training) { return; }
  across_.emplace(mesh.along("replicate").reduce());
}

Channel Sharding::along_pipe(const std::vector<int>& places) const {
  const MeshGroups pipe = mesh_.shape().along({"pipe"});
  const GroupOf group_of = [&, groups = pipe.groups()](int rank) {
    const bool among = std::ranges::find(places, pipe.index_of(rank)) != places.end();
    return among ? groups[static_cast<std::size_t>(rank)] : pipe.count() + rank;
  };
  return mesh_.world().split(mesh_.world().reduce_channel(), group_of,
                             fmt::format("pipe {} reduce", fmt::join(places, ",")));
}

ModelPlace model_place(const ModelOptions& options, int rank) {
  if (options.mesh.empty()) { return {}; }
  const MeshShape mesh{options.mesh};
  return {{mesh.index("tensor", rank), mesh.size("tensor")}, mesh.index("pipe", rank)};
}

int data_ranks(const ModelOptions& options, int ranks) {
  return options.mesh.empty() ? ranks : MeshShape{options.mesh}.data_ranks();
}

}  // namespace tessera::engine
