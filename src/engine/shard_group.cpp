#include "engine/shard_group.hpp"

#include "base/machine.hpp"
#include "engine/model/options.hpp"

namespace tessera::engine {
ShardGroup ShardGroup::make(World& world, const ModelOptions& options) {
  if (options.strategy != Strategy::hybrid) { return {world, world.size(), options.purpose}; }
  const int ranks =
      options.shard_group > 0 ? options.shard_group : shard_group_of(machines_of_ranks(world));
  return {world, ranks, options.purpose};
}

ShardGroup::ShardGroup(World& world, int ranks, Purpose purpose)
    : ranks_{ranks},
      kept_shards_{world.size() / ranks},
      index_{world.rank() % ranks},
      group_{world.rank() / ranks},
      gather_{in_group(world, world.gather_channel(), "shard gather")},
      reduce_{purpose == Purpose::training ? in_group(world, world.reduce_channel(), "shard reduce")
                                           : world.reduce_channel()} {
  if (kept_shards_ == 1 || purpose != Purpose::training) { return; }
  const GroupOf replicas = [ranks](int rank) { return rank % ranks; };
  across_.emplace(world.split(world.reduce_channel(), replicas, "replicas"));
}

Channel ShardGroup::in_group(World& world, Channel whole, const char* name) const {
  if (kept_shards_ == 1) { return whole; }
  const GroupOf neighbours = [ranks = ranks_](int rank) { return rank / ranks; };
  return world.split(whole, neighbours, name);
}

Range ShardGroup::kept(const SegmentLayout& segment) const noexcept {
  const std::int64_t elems = segment.shard_elems() * kept_shards_;
  return {index_ * elems, elems};
}

int ShardGroup::normed_shard() const noexcept {
  return index_ * kept_shards_ + group_;
}

}  // namespace tessera::engine

namespace tessera {

std::vector<std::string> machines_of_ranks(World& world) {
  return world.exchange(machine_id());
}

}  // namespace tessera
