#include "tools/measure/scaling.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/world/run.hpp"
#include "tools/measure/gpt_runner.hpp"

namespace tessera::bench {
namespace {

/// Lets one of several jobs run at a time, in order, until one has failed.
class Turns {
 public:
  explicit Turns(std::size_t jobs) : jobs_{jobs} {}

  /// Blocks until it is `job`'s turn. Throws if a job has failed.
  void take(std::size_t job) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return failure_ || next_ == job; });
    if (failure_) { std::rethrow_exception(failure_); }
  }
  void pass() {
    const std::lock_guard lock{mutex_};
    next_ = (next_ + 1) % jobs_;
    changed_.notify_all();
  }
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock{mutex_};
    if (!failure_) { failure_ = std::move(failure); }
    changed_.notify_all();
  }
  void rethrow() const {
    if (failure_) { std::rethrow_exception(failure_); }
  }

 private:
  const std::size_t jobs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  std::exception_ptr failure_;
};

/// The steps of `point` on one of its ranks. Rank 0 takes the turns and records the times; the
/// others wait for it in the step's first barrier.
void run_point(World& world, const StepOptions& options, std::size_t job, Turns& turns,
               ScalingPoint& point) {
  const bool leads = world.rank() == 0;
  const auto runners = make_runners(world, options);
  for (int round = -kUntimedRounds; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < runners.size(); ++i) {
      if (leads) { turns.take(job); }
      const double used = cpu_now();
      const double seconds = runners[i]->timed_step();
      if (!leads) { continue; }
      const double cpu = cpu_now() - used;
      if (round >= 0) {
        point.strategies[i].series.seconds.push_back(seconds);
        point.strategies[i].cpu.seconds.push_back(cpu);
      }
      turns.pass();
    }
  }
}

std::vector<ScalingPoint> empty_points(const ScalingOptions& options) {
  std::vector<ScalingPoint> points;
  for (const int ranks : options.ranks) {
    ScalingPoint& point = points.emplace_back(ScalingPoint{ranks, {}});
    for (const Strategy strategy : options.step.strategies) {
      point.strategies.push_back({strategy, {}, {}});
    }
  }
  return points;
}

}  // namespace

std::vector<ScalingPoint> measure_scaling(const ScalingOptions& options) {
  std::vector<ScalingPoint> points = empty_points(options);
  Turns turns{points.size()};
  {
    std::vector<std::jthread> jobs;
    for (std::size_t job = 0; job < points.size(); ++job) {
      jobs.emplace_back([&, job] {
        ScalingPoint& point = points[job];
        StepOptions one = options.step;
        one.ranks = point.ranks;
        one.batch = options.step.batch / point.ranks;
        try {
          run_ranks(point.ranks, [&](World& world) { run_point(world, one, job, turns, point); });
        } catch (...) { turns.fail(std::current_exception()); }
      });
    }
  }
  turns.rethrow();
  return points;
}

AgainstTwo against_two(const std::vector<ScalingPoint>& points, std::size_t point,
                       std::size_t strategy) {
  const auto two = std::find_if(points.begin(), points.end(),
                                [](const ScalingPoint& p) { return p.ranks == 2; });
  const ScaledSteps& base = (two == points.end() ? points.front() : *two).strategies[strategy];
  const ScaledSteps& steps = points[point].strategies[strategy];
  return {median_ratio(steps.series, base.series), median_ratio(steps.cpu, base.cpu)};
}

}  // namespace tessera::bench
