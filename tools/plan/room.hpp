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
    everything,  ///< a machine's memory, of ranks that compute on its processors
    device,      ///< what ranks hold on a device
    host_pools,  ///< what they have moved out of it
  };
  Holds holds{};
  std::string name;        ///< "this machine", "cuda:0"
  double free_bytes = 0;   ///< for these ranks
  std::vector<int> ranks;  ///< that share it
};

/// What those ranks are planned to hold of it together: a double, as it may be far beyond 64 bits.
[[nodiscard]] double bytes_in(const Room& room, const StrategyPlan& plan);

/// Where the ranks of settled `settings` that are threads of this process have to fit.
[[nodiscard]] std::vector<Room> rooms_of_threads(const Settings& settings);

/// *Collective.* Where this process's rank has to fit, with its neighbours of a job of processes.
[[nodiscard]] std::vector<Room> rooms_of_process(World& world);

}  // namespace tessera::tools
