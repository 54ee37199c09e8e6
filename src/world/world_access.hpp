#pragma once

#include <vector>

#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/world.hpp"

namespace tessera::world {

/// What the library itself needs of a world, besides the user's interface.
struct WorldAccess {
  using State = WorldState;  ///< world/world_state.hpp
  [[nodiscard]] static State& state(World& world) noexcept { return *world.state_; }
  [[nodiscard]] static const State& state(const World& world) noexcept { return *world.state_; }
  /// Whether World::run_as_graph is capturing: the host must not wait for work that it enqueues.
  [[nodiscard]] static bool in_graph(const World& world) noexcept;
  /// Whether the rank's device computes behind its host, as CUDA devices do; in a simulation,
  /// whether the device of the run would.
  [[nodiscard]] static bool computes_behind_host(const World& world) noexcept;
  /// The options of kernels on which ranks must agree, a line each: recorded products, and
  /// attention's workspace if it is not the default. Empty without them.
  [[nodiscard]] static std::string describe_kernels(const World& world);
  /// From now on texts of the job's failure name ranks with their places in a mesh of `dims`; with
  /// one dimension or none the number suffices.
  static void name_ranks(World& world, const std::vector<MeshDim>& dims);
  /// Returns what `rank` is called in errors: "rank 5 (pipe 1, shard 0)".
  [[nodiscard]] static std::string name_of(const World& world, int rank);
};

}  // namespace tessera::world
