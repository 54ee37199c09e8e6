#include "bench/google.hpp"

#include <algorithm>

namespace tessera::bench {
namespace {

constexpr int kLimitRounds = 5;

void count(benchmark::State& state, const Comparison& comparison) {
  const std::string unit = comparison.work == Work::bytes ? "B/s" : "FLOP/s";
  state.counters["bytes"] = comparison.ours.bytes;
  state.counters["flops"] = comparison.ours.flops;
  state.counters[unit] = comparison.ours.rate(comparison.work);
  // Shows the highest of several limits.
  const auto best = std::max_element(comparison.limits.begin(), comparison.limits.end(),
                                     [&](const Timed& a, const Timed& b) {
                                       return a.rate(comparison.work) < b.rate(comparison.work);
                                     });
  state.counters["limit " + unit] = best->rate(comparison.work);
  state.counters["of limit"] = comparison.ratio(*best);
  state.SetLabel("limit: " + best->name);
}

}  // namespace

void run(benchmark::State& state, const Contest& contest) {
  for (auto _ : state) { contest.ours.run(); }
  count(state, measure(contest, kLimitRounds));
}

void run(benchmark::State& state, Collective collective) {
  const CollectiveOptions options{state.range(1), static_cast<int>(state.range(0)),
                                  static_cast<int>(state.max_iterations)};
  const Comparison comparison = measure_collectives({collective}, options).front();
  auto seconds = comparison.ours.series.seconds.begin();
  for (auto _ : state) { state.SetIterationTime(*seconds++); }
  count(state, comparison);
}

}  // namespace tessera::bench
