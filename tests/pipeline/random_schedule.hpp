#pragma once

#include <random>
#include <utility>
#include <vector>

#include "tessera/pipeline/schedule.hpp"

namespace tessera::pipeline {

/// Returns a schedule that ends: stages on any of `ranks` ranks, and each rank's actions in the
/// order of one random valid sequence of all actions.
inline Schedule random_schedule(int ranks, std::uint32_t seed) {
  std::mt19937 random{seed};
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint32_t>(n));
  };
  const int stages = 1 + below(2 * ranks + 1);
  Schedule schedule{.name = "random",
                    .micro_batches = 1 + below(6),
                    .rank_of_stage = {},
                    .ranks = std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks))};
  for (int stage = 0; stage < stages; ++stage) { schedule.rank_of_stage.push_back(below(ranks)); }
  // Each micro-batch goes forward and back. Tracks the next action of each, and remaining weight
  // gradients.
  std::vector<int> passed(static_cast<std::size_t>(schedule.micro_batches));
  std::vector<Action> weights;
  for (;;) {
    std::vector<Action> possible = weights;
    for (int m = 0; m < schedule.micro_batches; ++m) {
      const int passes = passed[static_cast<std::size_t>(m)];
      if (passes == 2 * stages) { continue; }
      const bool forward = passes < stages;
      possible.push_back({forward ? Work::forward : Work::backward,
                          forward ? passes : 2 * stages - 1 - passes, m});
    }
    if (possible.empty()) { return schedule; }
    Action next = possible[static_cast<std::size_t>(below(static_cast<int>(possible.size())))];
    if (next.work == Work::backward_weight) {
      std::erase(weights, next);
    } else {
      ++passed[static_cast<std::size_t>(next.micro_batch)];
    }
    if (next.work == Work::backward && below(2) == 0) {
      next.work = Work::backward_input;
      weights.push_back({Work::backward_weight, next.stage, next.micro_batch});
    }
    const int rank = schedule.rank_of_stage[static_cast<std::size_t>(next.stage)];
    schedule.ranks[static_cast<std::size_t>(rank)].push_back(next);
  }
}

}  // namespace tessera::pipeline
