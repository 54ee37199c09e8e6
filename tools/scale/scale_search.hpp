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
  std::string why_not;                  ///< one word for tables: "memory", "time", "processes", ...
  std::string reason;                   ///< a sentence
};

/// The largest model of a family that fits under one strategy on one number of ranks.
struct ScalePoint {
  Strategy strategy{};
  int ranks = 1;
  std::int64_t index = 0;  ///< in the family; 0: even the smallest does not fit
  nn::DecoderConfig model;
  StrategyPlan plan;            ///< of `model`; of the smallest model if none fits
  bool last_of_family = false;  ///< nothing larger was tried
  std::optional<Measurement> measured;

  [[nodiscard]] bool fits() const noexcept { return index > 0; }
  [[nodiscard]] std::size_t peak_bytes() const { return plan.fullest().memory.peak_bytes; }
};

/// The largest of 1 .. `last` for which `fits` holds, 0 if none. If it holds for a number, it must
/// hold for all below. Calls `fits` about 2 log2 |answer - guess| times.
[[nodiscard]] std::int64_t largest(std::int64_t last, std::int64_t guess,
                                   const std::function<bool(std::int64_t)>& fits);

/// The settings of a run under `strategy` on `ranks`. If --mesh splits the model, the remaining
/// ranks are along shard, or along replicate if the strategy shards nothing; they come before
/// `tensor`. ConfigError unless the mesh divides the ranks.
[[nodiscard]] Settings settings_of_point(const Settings& settings, Strategy strategy, int ranks);

/// The points of every strategy and number of ranks of `settings`, strategy by strategy. Each
/// candidate is planned by running it on a device that only counts.
[[nodiscard]] std::vector<ScalePoint> scale_points(const Settings& settings, const Family& family,
                                                   std::size_t budget_bytes);

}  // namespace tessera::tools
