#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan/planner.hpp"
#include "tools/scale/family.hpp"

namespace tessera::tools {

/// What a run of a point held.
struct Measurement {
  std::vector<std::size_t> peak_bytes;  ///< of each rank; empty if it did not run
  std::string why_not;                  ///< a word for tables: "memory", "time", "processes", ...
  std::string reason;                   ///< a sentence
};

/// The largest model of a family that fits under one strategy on one number of ranks.
struct ScalePoint {
  Strategy strategy{};
  int ranks = 1;
  std::int64_t index = 0;  ///< in the family; 0: not even the smallest fits
  nn::GPTConfig model;
  StrategyPlan plan;            ///< of `model`; of the smallest where none fits
  bool last_of_family = false;  ///< nothing larger was tried
  std::optional<Measurement> measured;

  [[nodiscard]] bool fits() const noexcept { return index > 0; }
  [[nodiscard]] std::size_t peak_bytes() const { return plan.fullest().memory.peak_bytes; }
};

/// The largest of 1 .. `last` that `fits`, 0 if none does. If a number fits, so do all below it.
/// Asks about 2 log2 |answer - guess| times.
[[nodiscard]] std::int64_t largest(std::int64_t last, std::int64_t guess,
                                   const std::function<bool(std::int64_t)>& fits);

/// What a run of `settings` under `strategy` on `ranks` would be typed as: where --mesh splits the
/// model, the ranks that it leaves are along shard, or along replicate where the strategy shards
/// nothing; they stand before `tensor`. ConfigError unless it divides the ranks.
[[nodiscard]] Settings settings_of_point(const Settings& settings, Strategy strategy, int ranks);

/// The points of every strategy and number of ranks of `settings`, strategy by strategy. Each
/// candidate is planned: a run of it on a device that only counts.
[[nodiscard]] std::vector<ScalePoint> scale_points(const Settings& settings, const Family& family,
                                                   std::size_t budget_bytes);

}  // namespace tessera::tools
