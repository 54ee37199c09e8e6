#include "tessera/pipeline/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "pipeline/progress.hpp"
#include "tessera/base/error.hpp"

namespace tessera::pipeline {
namespace {

void check_costs(const Schedule& schedule, const Costs& costs) {
  const std::size_t given = costs.stages.size();
  if (given > 1 && given != schedule.rank_of_stage.size()) {
    throw ConfigError{
        fmt::format("schedule {}: costs of {} stages for a pipeline of {}; give one for all "
                    "stages, or one for each",
                    schedule.name, given, schedule.stages())};
  }
  const auto legal = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  const bool all = std::all_of(costs.stages.begin(), costs.stages.end(), [&](const StageCosts& of) {
    return legal(of.forward) && legal(of.backward_input) && legal(of.backward_weight);
  });
  if (all && legal(costs.transfer)) { return; }
  throw ConfigError{
      fmt::format("schedule {}: a cost is negative or not finite; give finite costs of 0 or more",
                  schedule.name)};
}

double cost_of(const Action& action, const Costs& costs) {
  const std::size_t at = costs.stages.size() > 1 ? static_cast<std::size_t>(action.stage) : 0;
  const StageCosts of = costs.stages.empty() ? StageCosts{} : costs.stages[at];
  switch (action.work) {
    case Work::forward:
      return of.forward;
    case Work::backward_input:
      return of.backward_input;
    case Work::backward_weight:
      return of.backward_weight;
    case Work::backward:
      break;
  }
  return of.backward_input + of.backward_weight;
}

}  // namespace

Timeline play(const Schedule& schedule, const Costs& costs) {
  check(schedule);
  check_costs(schedule, costs);
  Progress progress{schedule};
  const std::size_t ranks = schedule.ranks.size();
  Timeline timeline{.ranks = std::vector<std::vector<Span>>(ranks), .length = 0};
  std::vector<double> free_at(ranks, 0.0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks; ++r) {
      const int rank = static_cast<int>(r);
      while (const Action* const action = progress.next(rank)) {
        double begin = free_at[r];
        if (const std::optional<Action> needed = progress.needs(*action)) {
          const std::optional<double> there = progress.done(*needed);
          if (!there) { break; }
          const bool own = schedule.rank_of_stage[static_cast<std::size_t>(needed->stage)] == rank;
          begin = std::max(begin, *there + (own ? 0.0 : costs.transfer));
        }
        const double end = begin + cost_of(*action, costs);
        timeline.ranks[r].push_back({*action, begin, end});
        timeline.length = std::max(timeline.length, end);
        free_at[r] = end;
        progress.make(rank, end);
        moved = true;
      }
    }
  }
  return timeline;
}

double Timeline::idle(int rank) const {
  expects(rank >= 0 && std::cmp_less(rank, ranks.size()),
          "Timeline::idle: this rank does not exist");
  if (length == 0) { return 0; }
  double busy = 0;
  for (const Span& span : ranks[static_cast<std::size_t>(rank)]) { busy += span.end - span.begin; }
  return 1 - busy / length;
}

double Timeline::bubble() const {
  double sum = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) { sum += idle(static_cast<int>(rank)); }
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

double bubble_by_formula(int ranks, int micro_batches, int chunks) {
  expects(ranks >= 1 && micro_batches >= 1 && chunks >= 1,
          "bubble_by_formula: ranks, micro-batches and chunks must be 1 or more");
  return static_cast<double>(ranks - 1) / (static_cast<double>(chunks) * micro_batches + ranks - 1);
}

std::string draw(const Timeline& timeline) {
  constexpr double most = 1e6;
  if (!(timeline.length >= 0 && timeline.length <= most)) {
    throw ConfigError{
        fmt::format("a timeline of {:g} units of time cannot be drawn with a column for each: give "
                    "costs in a larger unit, for at most {:g}",
                    timeline.length, most)};
  }
  const auto columns = static_cast<std::size_t>(std::lround(timeline.length));
  std::string picture;
  for (const auto& spans : timeline.ranks) {
    std::string line(columns, '.');
    for (const Span& span : spans) {
      const int m = span.action.micro_batch;
      char mark = static_cast<char>('0' + m % 10);
      if (span.action.work == Work::backward_weight) { mark = static_cast<char>('A' + m % 26); }
      if (span.action.work == Work::backward || span.action.work == Work::backward_input) {
        mark = static_cast<char>('a' + m % 26);
      }
      const auto first = static_cast<std::size_t>(std::lround(span.begin));
      const auto last = std::min(columns, static_cast<std::size_t>(std::lround(span.end)));
      for (std::size_t at = first; at < last; ++at) { line[at] = mark; }
    }
    picture += line + "\n";
  }
  return picture;
}

}  // namespace tessera::pipeline
