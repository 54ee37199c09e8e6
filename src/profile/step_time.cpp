#include "tessera/profile/step_time.hpp"

#include <algorithm>

#include "profile/step_simulation.hpp"
#include "tessera/base/error.hpp"

namespace tessera::profile {
namespace {

TimeShares operator-(const TimeShares& a, const TimeShares& b) {
  return {a.computing - b.computing, a.memory - b.memory, a.bandwidth - b.bandwidth,
          a.latency - b.latency, a.waiting - b.waiting};
}

TimeShares operator+(const TimeShares& a, const TimeShares& b) {
  return {a.computing + b.computing, a.memory + b.memory, a.bandwidth + b.bandwidth,
          a.latency + b.latency, a.waiting + b.waiting};
}

}  // namespace

StepTime StepSimulation::run() {
  play();
  StepTime time;
  for (const SimulatedKind& kind : kinds_) {
    expects(kind.steps.size() >= 2, "step_time: each log must hold at least two steps");
    const StepEnd& last = kind.steps.back();
    const StepEnd& before = kind.steps[kind.steps.size() - 2];
    RankTime& rank = time.ranks.emplace_back();
    rank.flops = last.flops - before.flops;
    if (is_first(kind)) { time.seconds = last.at - before.at; }
    for (std::size_t p = 0; p < kind.phases.size(); ++p) {
      const TimeShares part = last.phases[p] - before.phases[p];
      if (part.total() <= 0) { continue; }
      if (is_first(kind)) { time.phases.push_back({kind.log->phases()[p], part}); }
      rank.shares = rank.shares + part;
    }
  }
  time.flops = time.ranks.front().flops;
  time.shares = time.ranks.front().shares;
  time.spans = std::move(spans_);
  return time;
}

}  // namespace tessera::profile

namespace tessera {

std::string_view bound_of(const TimeShares& shares) noexcept {
  const std::pair<double, std::string_view> all[] = {{shares.computing, "compute"},
                                                     {shares.memory, "memory"},
                                                     {shares.bandwidth, "bandwidth"},
                                                     {shares.latency, "latency"},
                                                     {shares.waiting, "waiting"}};
  return std::max_element(std::begin(all), std::end(all),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

StepTime step_time(std::span<const RankWork> ranks, const MachineProfile& profile) {
  expects(!ranks.empty(), "step_time: no ranks were given");
  return profile::StepSimulation{ranks, profile}.run();
}

}  // namespace tessera
