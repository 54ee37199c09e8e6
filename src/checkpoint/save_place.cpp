#include "checkpoint/save_place.hpp"

#include <map>

namespace tessera::checkpoint {

SavePlace SavePlace::by_machine(const std::vector<std::string>& machines) {
  SavePlace place{static_cast<int>(machines.size())};
  std::map<std::string, int> leaders;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    place.leader_of_[rank] =
        leaders.try_emplace(machines[rank], static_cast<int>(rank)).first->second;
  }
  return place;
}

int SavePlace::parts() const {
  int count = 0;
  for (int rank = 0; rank < static_cast<int>(leader_of_.size()); ++rank) {
    count += leads(rank) ? 1 : 0;
  }
  return count;
}

int SavePlace::part_of(int rank) const {
  int part = 0;
  for (int before = 0; before < leader_of(rank); ++before) { part += leads(before) ? 1 : 0; }
  return part;
}

}  // namespace tessera::checkpoint
