#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace tessera {

/// Returns what a rank of a group is called in errors: "rank 5 (pipe 1, shard 0)".
using NameOfRank = std::function<std::string(int rank)>;

/// What the ranks of a job are called where the job tells of its failure: "rank 5", and, once a
/// program has said how it arranges them, "rank 5 (pipe 1, shard 0)". All ranks say the same.
///
/// Threads: any.
class RankNames {
 public:
  /// `place_of` returns where a rank is, such as "pipe 1, shard 0". The last call counts.
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

}  // namespace tessera
