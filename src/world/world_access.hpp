#pragma once

#include <vector>

#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// What the library itself asks of a world, beside what a user needs.
struct WorldAccess {
  using State = World::State;  ///< world/world_state.hpp
  [[nodiscard]] static State& state(World& world) noexcept { return *world.state_; }
  [[nodiscard]] static const State& state(const World& world) noexcept { return *world.state_; }
  /// Whether World::run_as_graph is under way: the host must not wait for what it enqueues.
  [[nodiscard]] static bool in_graph(const World& world) noexcept;
  /// Whether the rank's device computes behind its host, as CUDA devices do; in a simulation,
  /// whether the device of the run would.
  [[nodiscard]] static bool computes_behind_host(const World& world) noexcept;
  /// What ranks must bring alike of WorldOptions::products, in one line; empty if none are given.
  [[nodiscard]] static std::string describe_products(const World& world);
  /// What tells of the job's failure names ranks with their places in a mesh of `dims` from now on;
  /// with one dimension or none a rank's number says as much.
  static void name_ranks(World& world, const std::vector<MeshDim>& dims);
};

}  // namespace tessera
