#include "tools/scale/scale_search.hpp"

#include <algorithm>

namespace tessera::tools {
namespace {

class Search {
 public:
  Search(const Settings& settings, const Family& family, std::size_t budget_bytes)
      : settings_{settings}, family_{family}, last_{family.last()}, budget_bytes_{budget_bytes} {}

  ScalePoint point(Strategy strategy, int ranks, std::int64_t guess) const {
    std::optional<StrategyPlan> best;
    const auto fits_index = [&](std::int64_t index) {
      std::optional<StrategyPlan> plan = within_budget(strategy, ranks, index);
      const bool yes = plan.has_value();
      if (yes) { best = std::move(plan); }  // the last that fits is the largest
      return yes;
    };
    ScalePoint point;
    point.strategy = strategy;
    point.ranks = ranks;
    point.index = largest(last_, guess, fits_index);
    point.model = family_.member(std::max<std::int64_t>(point.index, 1));
    point.plan = best ? *best : plan(strategy, ranks, 1);
    point.last_of_family = point.index == last_;
    return point;
  }

 private:
  [[nodiscard]] StrategyPlan plan(Strategy strategy, int ranks, std::int64_t index) const {
    const NamedModel model{family_.name, family_.member(index)};
    return {strategy, plan_training(settings_, model, strategy, ranks)};
  }

  [[nodiscard]] std::optional<StrategyPlan> within_budget(Strategy strategy, int ranks,
                                                          std::int64_t index) const {
    const NamedModel model{family_.name, family_.member(index)};
    auto all = plan_training_within(budget_bytes_, settings_, model, strategy, ranks);
    if (!all) { return {}; }
    return StrategyPlan{strategy, std::move(*all)};
  }

  const Settings& settings_;
  const Family& family_;
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
    if (low > 0 && high <= last) {  // between the two
      at = low + (high - low) / 2;
      continue;
    }
    at = std::clamp<std::int64_t>(low > 0 ? low + step : high - step, 1, last);
    step *= 2;
  }
  return low;
}

std::vector<ScalePoint> scale_points(const Settings& settings, const Family& family,
                                     std::size_t budget_bytes) {
  const Search search{settings, family, budget_bytes};
  std::vector<ScalePoint> points;
  std::int64_t guess = 1;
  for (const Strategy strategy : settings.strategies) {
    for (const int ranks : settings.rank_counts) {
      // Neighbours in the table are neighbours in size.
      points.push_back(search.point(strategy, ranks, guess));
      guess = points.back().index;
    }
  }
  return points;
}

}  // namespace tessera::tools
