#include "tessera/world/mesh.hpp"

#include <fmt/format.h>

namespace tessera {

Channel SubMesh::split(const Channel& whole, std::string_view channel) const {
  if (groups_.count() == 1) { return whole; }
  const GroupOf group_of = [this](int rank) { return groups_.group_of(rank); };
  return world_->split(whole, group_of, fmt::format("{} {}", groups_.name(), channel));
}

Channel SubMesh::beside(std::string_view purpose) const {
  const GroupOf group_of = [this](int rank) { return groups_.group_of(rank); };
  return world_->split_beside(group_of, fmt::format("{} {}", groups_.name(), purpose));
}

Mesh::Mesh(World& world, MeshShape shape) : world_{&world}, shape_{std::move(shape)} {
  require_ranks(shape_, world.size());
}

}  // namespace tessera
