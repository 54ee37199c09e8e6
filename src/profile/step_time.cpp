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
  expects(steps_.size() >= 2, "step_time: the logs must hold two steps at least");
  const StepEnd& last = steps_.back();
  const StepEnd& before = steps_[steps_.size() - 2];
  StepTime time;
  time.seconds = last.at - before.at;
  time.flops = last.flops - before.flops;
  for (std::size_t p = 0; p < phases_.size(); ++p) {
    const TimeShares part = last.phases[p] - before.phases[p];
    if (part.total() <= 0) { continue; }
    time.phases.push_back({kinds_.front().log->phases()[p], part});
    time.shares = time.shares + part;
  }
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
  expects(!ranks.empty(), "step_time: no ranks");
  return profile::StepSimulation{ranks, profile}.run();
}

}  // namespace tessera
