#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::comm {

/// Returns the name of a group's rank in errors: "rank 5 (pipe 1, shard 0)".
using NameOfRank = std::function<std::string(int rank)>;

/// The names of a job's ranks in failure texts: "rank 5", or, once a program has arranged its
/// ranks, "rank 5 (pipe 1, shard 0)". Equal on all ranks.
///
/// Threads: any.
class RankNames {
 public:
  /// `place_of` returns a rank's place, such as "pipe 1, shard 0". The last call counts.
  void arrange(std::function<std::string(int rank)> place_of);

  /// Returns `rank 5` with its place.
  [[nodiscard]] std::string of(int rank) const;
  /// Returns `rank 1` or `ranks 1, 2, 5`, each with its place.
  [[nodiscard]] std::string of(const std::vector<int>& ranks) const;

 private:
  [[nodiscard]] std::string numbered(int rank) const;

  mutable std::mutex mutex_;
  std::function<std::string(int)> place_of_;
};

}  // namespace tessera::comm
