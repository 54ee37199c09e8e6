#pragma once

#include <cstdlib>
#include <vector>

#include "tessera/engine/strategy.hpp"

namespace tessera::test {

/// ModelOptions::shard_group for a job of `ranks` ranks: under hybrid half of them, so that there
/// are groups and copies, or 1 if the number is odd. With up to 3 ranks, sums are then added as
/// under every other strategy.
[[nodiscard]] inline int half_of(int ranks, Strategy strategy) {
  if (strategy != Strategy::hybrid) { return 0; }
  return ranks % 2 == 0 ? ranks / 2 : 1;
}

/// ModelOptions::shard_group with which hybrid adds in the order of the other strategies: groups of
/// one rank, whose gradients are summed only across groups. (One group of all ranks does so too,
/// but has no copies.)
[[nodiscard]] inline int groups_of_one(Strategy strategy) {
  return strategy == Strategy::hybrid ? 1 : 0;
}

/// The divisors of `ranks`, from 1 to `ranks`.
[[nodiscard]] inline std::vector<int> divisors(int ranks) {
  std::vector<int> all;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) { all.push_back(d); }
  }
  return all;
}

/// Whether this run repeats tests that the release build runs in full: under a sanitizer, or with
/// the products of another processor (TESSERA_CPU).
[[nodiscard]] inline bool repeats() {
  return TESSERA_SANITIZED || std::getenv("TESSERA_CPU") != nullptr;
}

/// Strategies for a table of similar cases. A run that repeats others skips those that share their
/// paths: dp with ddp, zero1 with ddp and zero2. Folders that test what each strategy does use all.
[[nodiscard]] inline std::vector<Strategy> tried_strategies() {
  if (!repeats()) { return all_strategies(); }
  return {Strategy::ddp, Strategy::zero2, Strategy::zero3, Strategy::hybrid};
}

/// Numbers of ranks for such a table: `few` where a run repeats others.
[[nodiscard]] inline std::vector<int> tried_ranks(const std::vector<int>& all,
                                                  const std::vector<int>& few) {
  return repeats() ? few : all;
}

}  // namespace tessera::test
