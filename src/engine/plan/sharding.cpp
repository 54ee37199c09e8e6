#include "engine/plan/sharding.hpp"

#include <fmt/format.h>

#include "engine/shard_group.hpp"
#include "tessera/base/error.hpp"

namespace tessera::engine {
namespace {

MeshShape mesh_of(World& world, const ModelOptions& options) {
  if (!options.mesh.empty()) { return MeshShape{options.mesh}; }
  const bool asks_machines = options.strategy == Strategy::hybrid && options.shard_group == 0;
  return tessera::mesh_of(options.strategy, world.size(),
                          asks_machines ? ranks_of_a_machine(world) : options.shard_group);
}

bool shards(Strategy strategy) noexcept {
  return traits_of(strategy).optimizer == Holding::sharded;
}

SubMesh sharing(const Mesh& mesh, Strategy strategy) {
  return shards(strategy) ? mesh.along("shard") : mesh.along("replicate", "shard");
}

void require_size_1(const MeshShape& mesh, const char* name, const char* needs) {
  if (mesh.size(name) == 1) { return; }
  throw ConfigError{
      fmt::format("mesh {}: ShardedModel has no use for '{}', which needs {}; arrange the ranks "
                  "along replicate and shard",
                  mesh.to_string(), name, needs)};
}

}  // namespace

Sharding Sharding::make(World& world, const ModelOptions& options) {
  return {Mesh{world, engine::mesh_of(world, options)}, options.strategy, options.purpose};
}

Sharding::Sharding(const Mesh& mesh, Strategy strategy, Purpose purpose)
    : ShardPlace{mesh.shape(), mesh.world().rank()},
      gather_{sharing(mesh, strategy).gather()},
      reduce_{purpose == Purpose::training ? sharing(mesh, strategy).reduce()
                                           : mesh.world().reduce_channel()} {
  if (!shards(strategy) || kept_shards() == 1 || purpose != Purpose::training) { return; }
  across_.emplace(mesh.along("replicate").reduce());
}

void check_mesh(const ModelOptions& options, int ranks) {
  if (options.mesh.empty()) { return; }
  const MeshShape mesh{options.mesh};
  require_ranks(mesh, ranks);
  if (options.shard_group != 0) {
    throw ConfigError{fmt::format(
        "mesh {} and shard_group {} are both given: leave `shard_group` at 0, as the mesh's "
        "dimension shard says the same",
        mesh.to_string(), options.shard_group)};
  }
  require_size_1(mesh, "tensor", "layers that each compute with a part of a weight");
  require_size_1(mesh, "pipe", "a schedule that sends activations from stage to stage");
  if (shards(options.strategy) || mesh.size("shard") == 1) { return; }
  throw ConfigError{
      fmt::format("mesh {}: {} shards nothing; put all ranks along replicate, or choose zero1, "
                  "zero2 or zero3",
                  mesh.to_string(), to_string(options.strategy))};
}

int data_ranks(const ModelOptions& options, int ranks) {
  return options.mesh.empty() ? ranks : MeshShape{options.mesh}.data_ranks();
}

std::string describe_mesh(const ModelOptions& options) {
  if (!options.mesh.empty()) {
    return fmt::format(" on mesh {}", MeshShape{options.mesh}.to_string());
  }
  return options.shard_group > 0 ? fmt::format(" in groups of {}", options.shard_group) : "";
}

}  // namespace tessera::engine
