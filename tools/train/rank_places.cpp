#include "tools/train/rank_places.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "tessera/world/mesh_shape.hpp"
#include "tools/common/machine.hpp"

namespace tessera::tools {
namespace {

std::string place_of(const MeshShape& mesh, int rank) {
  std::string place;
  const std::vector<int> coordinates = mesh.coordinates_of(rank);
  for (std::size_t dim = 0; dim < coordinates.size(); ++dim) {
    place += fmt::format("{}{} {}", dim == 0 ? "" : ", ", mesh.dims()[dim].name, coordinates[dim]);
  }
  return place;
}

}  // namespace

std::vector<std::string> rank_places(World& world, const Settings& settings) {
  if (settings.comm == CommChoice::local || settings.sharded.mesh.size() < 2) { return {}; }
  const MeshShape mesh{settings.sharded.mesh};
  std::vector<std::string> lines;
  for (const std::string& process :
       world.exchange(fmt::format("process {} on {}", ::getpid(), machine_name()))) {
    const int rank = static_cast<int>(lines.size());
    lines.push_back(fmt::format("rank {} ({}): {}", rank, place_of(mesh, rank), process));
  }
  return lines;
}

}  // namespace tessera::tools
