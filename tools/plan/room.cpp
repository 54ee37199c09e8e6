#include "tools/plan/room.hpp"

#include <algorithm>
#include <numeric>

#include "tessera/device/device_use.hpp"
#include "tools/common/machine.hpp"

namespace tessera::tools {
namespace {

Room machine_room(DeviceKind device, std::vector<int> ranks) {
  const auto holds = device == DeviceKind::cpu ? Room::Holds::everything : Room::Holds::host_pools;
  return {holds, "this machine", static_cast<double>(usable_memory()), std::move(ranks)};
}

Room device_room(const Device& device, std::vector<int> ranks) {
  return {Room::Holds::device, device.name(), static_cast<double>(device.memory()->free_bytes),
          std::move(ranks)};
}

/// The ranks whose text equals this rank's.
std::vector<int> alike(World& world, const std::string& own) {
  const std::vector<std::string> texts = world.exchange(own);
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (texts[static_cast<std::size_t>(rank)] == own) { ranks.push_back(rank); }
  }
  return ranks;
}

}  // namespace

double bytes_in(const Room& room, const StrategyPlan& plan) {
  double sum = 0;
  for (const int rank : room.ranks) {
    const RankPlan& planned = plan.of(rank);
    if (room.holds != Room::Holds::host_pools) {
      sum += static_cast<double>(planned.memory.peak_bytes);
    }
    if (room.holds != Room::Holds::device) { sum += static_cast<double>(planned.host_peak_bytes); }
  }
  return sum;
}

std::vector<Room> rooms_of_threads(const Settings& settings) {
  std::vector<int> all(static_cast<std::size_t>(settings.ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Room> rooms{machine_room(settings.world.device, all)};
  if (settings.world.device == DeviceKind::cpu) { return rooms; }
  // Ranks take devices in turn, like WorldOptions::cuda_ordinal.
  const auto devices = static_cast<int>(cuda_machine().devices.size());
  for (int ordinal = 0; ordinal < std::min(devices, settings.ranks); ++ordinal) {
    std::vector<int> ranks;
    for (int rank = ordinal; rank < settings.ranks; rank += devices) { ranks.push_back(rank); }
    rooms.push_back(device_room(*make_cuda_device({.ordinal = ordinal, .peers = {}}), ranks));
  }
  return rooms;
}

// A machine is identified by its name; a container has its own name and memory.
std::vector<Room> rooms_of_process(World& world) {
  const Device& device = world.device();
  const std::string machine = machine_name();
  std::vector<Room> rooms{machine_room(device.kind(), alike(world, machine))};
  if (device.kind() == DeviceKind::cpu) { return rooms; }
  const std::vector<int> sharing = alike(world, use_of(device)->id);
  rooms.push_back(device_room(device, sharing));
  // The plan includes what the ranks' worlds hold already, the same on each.
  rooms.back().free_bytes += static_cast<double>(sharing.size()) *
                             static_cast<double>(world.memory().report().live.total());
  return rooms;
}

}  // namespace tessera::tools
