#pragma once

#include <string>
#include <vector>

#include "tessera/world/world.hpp"
#include "tools/options/settings.hpp"
#include "tools/plan/planner.hpp"

namespace tessera::tools {

/// Memory that some of a job's ranks share.
struct Room {
  enum class Holds : std::uint8_t {
    everything,  ///< a machine's memory, for ranks that compute on its processors
    device,      ///< the memory of a device
    host_pools,  ///< the ranks' host pools
  };
  Holds holds{};
  std::string name;        ///< "this machine", "cuda:0"
  double free_bytes = 0;   ///< available to these ranks
  std::vector<int> ranks;  ///< ranks that share it
};

/// The sum of these ranks' plans: a double, as it may exceed 64 bits by far.
[[nodiscard]] double bytes_in(const Room& room, const StrategyPlan& plan);

/// The rooms of the ranks of settled `settings`, as threads of this process.
[[nodiscard]] std::vector<Room> rooms_of_threads(const Settings& settings);

/// *Collective.* The rooms of this process's rank, shared with its neighbours in a job of
/// processes.
[[nodiscard]] std::vector<Room> rooms_of_process(World& world);

}  // namespace tessera::tools
