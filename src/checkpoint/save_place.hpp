#pragma once

#include <string>
#include <vector>

namespace tessera::checkpoint {

/// The ranks that write into one folder: all of a job with a shared file system, or those of one
/// machine. Each folder has a leader, the first of its ranks, which makes it and commits it.
class SavePlace {
 public:
  /// All ranks share one folder.
  explicit SavePlace(int ranks) : leader_of_(static_cast<std::size_t>(ranks), 0) {}
  /// Each machine has one folder. `machines`: by rank.
  [[nodiscard]] static SavePlace by_machine(const std::vector<std::string>& machines);

  [[nodiscard]] int leader_of(int rank) const {
    return leader_of_.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] bool leads(int rank) const { return leader_of(rank) == rank; }
  /// The number of folders.
  [[nodiscard]] int parts() const;
  /// The index of the folder of `rank`, from 0 in the order of leaders.
  [[nodiscard]] int part_of(int rank) const;

 private:
  std::vector<int> leader_of_;  // by rank
};

}  // namespace tessera::checkpoint
