#include <algorithm>
#include <cmath>
#include <limits>

#include "profile/step_simulation.hpp"
#include "tessera/base/error.hpp"

// How time passes between two moments at which some work ends.
namespace tessera::profile {

template <class Visit>
void StepSimulation::for_each_running(const Visit& visit) {
  for (SimulatedKind& kind : kinds_) {
    if (kind.host.busy) { visit(kind, kind.host, "compute"); }
    for (std::size_t s = 0; s < kind.streams.size(); ++s) {
      if (kind.streams[s].busy) { visit(kind, kind.streams[s], kind.log->streams()[s]); }
    }
  }
}

double StepSimulation::threads_at_work() const {
  double threads = 0;
  for (const SimulatedKind& kind : kinds_) {
    const auto count = [&](const SimulatedStream& s) {
      if (s.busy && s.running.fixed <= 0) { threads += kind.count; }
    };
    count(kind.host);
    std::for_each(kind.streams.begin(), kind.streams.end(), count);
  }
  return threads;
}

double StepSimulation::speed(const SimulatedKind& kind, const Running& running) const {
  if (profile_.cores > 0) {
    const double cores = profile_.cores;
    const double threads = threads_at_work();
    if (threads >= cores) { return cores / threads / running.shared; }
    const double busy = cores > 1 ? (threads - 1) / (cores - 1) : 1;
    return 1 / (1 + (running.shared - 1) * busy);
  }
  int beside = 0;
  int same_links = 0;
  for (const SimulatedStream& other : kind.streams) {
    if (!other.busy || !other.running.moves || other.running.fixed > 0) { continue; }
    ++beside;
    same_links += other.running.level == running.level ? 1 : 0;
  }
  if (running.moves) { return 1.0 / same_links; }
  return running.computes && beside > 0 ? profile_.speed_beside_collectives : 1;
}

void StepSimulation::advance() {
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::pair<Running*, double>> all;
  for_each_running([&](SimulatedKind& kind, SimulatedStream& stream, const std::string&) {
    Running& running = stream.running;
    const double rate = running.fixed > 0 ? 1 : speed(kind, running);
    all.emplace_back(&running, rate);
    least = std::min(least, running.fixed > 0 ? running.fixed : running.left / rate);
  });
  expects(!all.empty(),
          "step_time: every stream waits for work that never comes; the logs do not fit together");
  if (!std::isfinite(least)) {
    throw ConfigError{
        "the machine's profile makes some work take forever; check its rates and seconds"};
  }
  account(least);
  now_ += least;
  constexpr double kNothing = 1e-15;
  for (const auto& [running, rate] : all) {
    double& rest = running->fixed > 0 ? running->fixed : running->left;
    rest -= least * rate;
    if (rest < kNothing) { rest = 0; }
  }
  for_each_running([&](SimulatedKind& kind, SimulatedStream& stream, const std::string& name) {
    if (stream.running.fixed <= 0 && stream.running.left <= 0) { finish(kind, stream, name); }
  });
}

void StepSimulation::account(double seconds) {
  for (SimulatedKind& kind : kinds_) { account(kind, seconds); }
}

void StepSimulation::account(SimulatedKind& kind, double seconds) const {
  bool moving = false;
  bool beginning = false;
  for (const SimulatedStream& stream : kind.streams) {
    if (!stream.busy || stream.running.computes) { continue; }
    (stream.running.fixed > 0 ? beginning : moving) = true;
  }
  const SimulatedStream& compute = profile_.cores > 0 ? kind.host : kind.streams.front();
  TimeShares& shares = kind.phases[static_cast<std::size_t>(kind.phase)];
  double& share = compute.busy && compute.running.computes
                      ? (compute.running.memory ? shares.memory : shares.computing)
                  : moving    ? shares.bandwidth
                  : beginning ? shares.latency
                              : shares.waiting;
  share += seconds;
}

void StepSimulation::finish(SimulatedKind& kind, SimulatedStream& stream, const std::string& name) {
  stream.busy = false;
  const bool shown = is_first(kind) && (stream.running.computes || &stream != &kind.host);
  if (shown) { spans_.push_back({name, *stream.running.what, stream.running.began, now_}); }
}

}  // namespace tessera::profile
