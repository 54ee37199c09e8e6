#include "tools/scale/scale_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.hpp"
#include "tools/options/mesh.hpp"

namespace tessera::tools {
namespace {

/// The index of the smallest member with a layer for every stage and, where queries share key
/// heads, a key head for every rank along `tensor`. A plan says what is wrong if there is none.
std::int64_t smallest_for(const Settings& settings, const Family& family) {
  const int tensor = ranks_along(settings, "tensor");
  std::int64_t index = stages_of(settings);
  const auto divides = [&](const nn::DecoderConfig& model) {
    return model.key_heads() == model.heads || model.key_heads() >= tensor;
  };
  const std::int64_t last = family.last();
  while (index < last && !divides(family.member(index))) { ++index; }
  return index;
}

class Search {
 public:
  Search(const Settings& settings, const Family& family, std::size_t budget_bytes)
      : settings_{settings},
        family_{family},
        least_{smallest_for(settings, family)},
        last_{std::max(family.last(), least_)},
        budget_bytes_{budget_bytes} {}

  ScalePoint point(Strategy strategy, int ranks, std::int64_t guess) const {
    std::optional<StrategyPlan> best;
    const auto fits_index = [&](std::int64_t index) {
      if (index < least_) { return true; }  // too small for the mesh, not too large for the budget
      std::optional<StrategyPlan> plan = within_budget(strategy, ranks, index);
      const bool yes = plan.has_value();
      if (yes) { best = std::move(plan); }  // the last that fits is the largest
      return yes;
    };
    ScalePoint point;
    point.strategy = strategy;
    point.ranks = ranks;
    point.index = largest(last_, guess, fits_index);
    if (point.index < least_) { point.index = 0; }
    point.model = family_.member(std::max(point.index, least_));
    point.plan = best ? *best : plan(strategy, ranks, least_);
    point.last_of_family = point.index == last_;
    return point;
  }

 private:
  [[nodiscard]] StrategyPlan plan(Strategy strategy, int ranks, std::int64_t index) const {
    const NamedModel model{family_.name, family_.member(index)};
    const Settings settings = settings_of_point(settings_, strategy, ranks);
    return {strategy, plan_training(settings, model, strategy, ranks)};
  }

  [[nodiscard]] std::optional<StrategyPlan> within_budget(Strategy strategy, int ranks,
                                                          std::int64_t index) const {
    const NamedModel model{family_.name, family_.member(index)};
    const Settings settings = settings_of_point(settings_, strategy, ranks);
    auto all = plan_training_within(budget_bytes_, settings, model, strategy, ranks);
    if (!all) { return {}; }
    return StrategyPlan{strategy, std::move(*all)};
  }

  const Settings& settings_;
  const Family& family_;
  std::int64_t least_;  // a mesh can split it
  std::int64_t last_;
  std::size_t budget_bytes_;
};

}  // namespace

std::int64_t largest(std::int64_t last, std::int64_t guess,
                     const std::function<bool(std::int64_t)>& fits) {
  std::int64_t low = 0;
  std::int64_t high = last + 1;
  std::int64_t at = std::clamp<std::int64_t>(guess, 1, last);
  std::int64_t step = 1;
  while (high - low > 1) {
    (fits(at) ? low : high) = at;
    if (low > 0 && high <= last) {  // the answer is between them
      at = low + (high - low) / 2;
      continue;
    }
    at = std::clamp<std::int64_t>(low > 0 ? low + step : high - step, 1, last);
    step *= 2;
  }
  return low;
}

Settings settings_of_point(const Settings& settings, Strategy strategy, int ranks) {
  Settings point = settings;
  point.ranks = ranks;
  if (settings.sharded.mesh.empty()) { return point; }
  const int split = MeshShape{settings.sharded.mesh}.ranks();
  if (ranks % split != 0) {
    throw ConfigError(
        fmt::format("--mesh {}: {} ranks are not a multiple of its {}; give --ranks that are",
                    mesh_words(settings.sharded.mesh), ranks, split));
  }
  const bool shards = traits_of(strategy).optimizer == Holding::sharded;
  const auto tensor = std::ranges::find(point.sharded.mesh, "tensor", &MeshDim::name);
  point.sharded.mesh.insert(tensor, {shards ? "shard" : "replicate", ranks / split});
  return point;
}

std::vector<ScalePoint> scale_points(const Settings& settings, const Family& family,
                                     std::size_t budget_bytes) {
  const Search search{settings, family, budget_bytes};
  std::vector<ScalePoint> points;
  std::int64_t guess = 1;
  for (const Strategy strategy : settings.strategies) {
    for (const int ranks : settings.rank_counts) {
      // Neighbours in the table have similar sizes: the last answer is the next guess.
      points.push_back(search.point(strategy, ranks, guess));
      guess = points.back().index;
    }
  }
  return points;
}

}  // namespace tessera::tools
