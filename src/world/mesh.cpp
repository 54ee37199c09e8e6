#include "tessera/world/mesh.hpp"

#include <fmt/format.h>

#include "comm/control/rank_names.hpp"
#include "world/world_state.hpp"

namespace tessera {

GroupOf SubMesh::group_of() const {
  return [groups = groups_.groups()](int rank) { return groups[static_cast<std::size_t>(rank)]; };
}

Channel SubMesh::split(const Channel& whole, std::string_view channel) const {
  if (groups_.count() == 1) { return whole; }
  return world_->split(whole, group_of(), fmt::format("{} {}", groups_.name(), channel));
}

Channel SubMesh::beside(std::string_view purpose) const {
  return world_->split_beside(group_of(), fmt::format("{} {}", groups_.name(), purpose));
}

Mesh::Mesh(World& world, MeshShape shape) : world_{&world}, shape_{std::move(shape)} {
  require_ranks(shape_, world.size());
}

void world::WorldAccess::name_ranks(World& world, const std::vector<MeshDim>& dims) {
  comm::RankNames* const names = state(world).names;
  if (names == nullptr || dims.size() < 2) { return; }
  names->arrange([shape = MeshShape{dims}](int rank) {
    const std::vector<int> coordinates = shape.coordinates_of(rank);
    std::string place;
    for (std::size_t dim = 0; dim < coordinates.size(); ++dim) {
      place +=
          fmt::format("{}{} {}", dim == 0 ? "" : ", ", shape.dims()[dim].name, coordinates[dim]);
    }
    return place;
  });
}

std::string world::WorldAccess::name_of(const World& world, int rank) {
  const comm::RankNames* const names = state(world).names;
  return names == nullptr ? comm::RankNames{}.of(rank) : names->of(rank);
}

}  // namespace tessera
