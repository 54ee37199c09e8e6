#include "tools/measure/comparison.hpp"

#include <utility>

namespace tessera::bench {
namespace {

Timed timed(const Case& source, Series series) {
  return {source.name, source.bytes, source.flops, std::move(series), source.runs};
}

}  // namespace

double Comparison::ratio(const Timed& limit) const {
  return ours.amount(work) / limit.amount(work) * median_ratio(limit.series, ours.series);
}

double Comparison::best_ratio(const Timed& limit) const {
  return ours.amount(work) / limit.amount(work) * limit.series.least() / ours.series.least();
}

Comparison measure(const Contest& contest, int rounds) {
  std::vector<std::function<void()>> runs{contest.ours.run};
  for (const Case& limit : contest.limits) { runs.push_back(limit.run); }
  std::vector<Series> series = in_turn(rounds, runs);
  Comparison result{contest.work, timed(contest.ours, std::move(series[0])), {}};
  for (std::size_t i = 0; i < contest.limits.size(); ++i) {
    result.limits.push_back(timed(contest.limits[i], std::move(series[i + 1])));
  }
  return result;
}

}  // namespace tessera::bench
