#pragma once

#include <vector>

#include "tessera/engine/strategy.hpp"

namespace tessera::test {

/// ModelOptions::shard_group for a job of `ranks` ranks: under hybrid half of them, so that there
/// are groups and copies, or one if the number is odd. Up to 3 ranks sums are then added as
/// under every other strategy.
[[nodiscard]] inline int half_of(int ranks, Strategy strategy) {
  if (strategy != Strategy::hybrid) { return 0; }
  return ranks % 2 == 0 ? ranks / 2 : 1;
}

/// ModelOptions::shard_group with which hybrid adds in the order of the other strategies: groups of
/// one, whose gradients are summed across groups alone. (All ranks in one group do so too, and are
/// not divided.)
[[nodiscard]] inline int groups_of_one(Strategy strategy) {
  return strategy == Strategy::hybrid ? 1 : 0;
}

/// The divisors, from 1 to `ranks` itself.
[[nodiscard]] inline std::vector<int> divisors(int ranks) {
  std::vector<int> all;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) { all.push_back(d); }
  }
  return all;
}

/// Strategies of a table whose rows are alike. Instrumented, those alone that share no path: dp's
/// is ddp's, and zero1's are ddp's and zero2's. Folders that hold what each does try all.
[[nodiscard]] inline std::vector<Strategy> tried_strategies() {
  if (!TESSERA_SANITIZED) { return all_strategies(); }
  return {Strategy::ddp, Strategy::zero2, Strategy::zero3, Strategy::hybrid};
}

/// Numbers of ranks of such a table: `few` where it is instrumented.
[[nodiscard]] inline std::vector<int> tried_ranks(const std::vector<int>& all,
                                                  const std::vector<int>& few) {
  return TESSERA_SANITIZED ? few : all;
}

}  // namespace tessera::test
