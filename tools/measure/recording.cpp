#include "tools/measure/recording.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "tools/measure/gpt_runner.hpp"

namespace tessera::bench {
namespace {

constexpr int kUntimedRecordedRounds = 2;  // the first step gathers without prefetch

enum class Side : std::uint8_t { off, on };

/// Decides which of two jobs may make a step. The other sleeps.
class SideTurns {
 public:
  void wait(Side side) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return ended_ || side_ == side; });
    if (ended_) { throw Error{"the other of the two jobs has failed"}; }
  }
  void pass(Side side) {
    {
      const std::lock_guard lock{mutex_};
      side_ = side == Side::off ? Side::on : Side::off;
    }
    changed_.notify_all();
  }
  /// Ends the turns after a job has failed. Returns whether it is the first to fail.
  [[nodiscard]] bool end() noexcept {
    const std::lock_guard lock{mutex_};
    changed_.notify_all();
    return !std::exchange(ended_, true);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Side side_ = Side::off;
  bool ended_ = false;
};

/// The two jobs and their measurements.
class TwoJobs {
 public:
  explicit TwoJobs(const StepOptions& options) : options_{options} {
    for (const Strategy strategy : options.strategies) { costs_.push_back({.strategy = strategy}); }
  }

  std::vector<RecordingCost> run() {
    std::thread recording{[this] { run_side(Side::on); }};
    run_side(Side::off);
    recording.join();
    if (cause_) { std::rethrow_exception(cause_); }
    return std::move(costs_);
  }

 private:
  void run_side(Side side) noexcept {
    try {
      WorldOptions options;
      options.trace = side == Side::on;
      options.trace_steps = side == Side::on ? 1 : 0;
      run_ranks(options_.ranks, [&](World& world) { run_rank(world, side); }, options);
    } catch (...) {
      if (turns_.end()) { cause_ = std::current_exception(); }
    }
  }

  void run_rank(World& world, Side side) {
    for (RecordingCost& cost : costs_) {
      GptRunner runner{world, options_, cost.strategy};
      for (int round = -kUntimedRecordedRounds; round < options_.rounds; ++round) {
        if (world.rank() == 0) { turns_.wait(side); }  // the other ranks wait for rank 0
        const double used = cpu_now();
        const double seconds = runner.timed_step();
        if (world.rank() != 0) { continue; }
        if (round >= 0) { add(cost, side, seconds, cpu_now() - used); }
        turns_.pass(side);
      }
      if (world.rank() == 0 && side == Side::on) { cost.records = records_of_last_step(world); }
    }
  }

  static void add(RecordingCost& cost, Side side, double seconds, double cpu) {
    const bool on = side == Side::on;
    (on ? cost.on : cost.off).seconds.push_back(seconds);
    (on ? cost.cpu_on : cost.cpu_off).seconds.push_back(cpu);
  }

  static std::size_t records_of_last_step(World& world) {
    std::int64_t last = 0;
    const std::vector<trace::Record> records = world.recorder()->records();
    for (const trace::Record& record : records) { last = std::max(last, record.step); }
    return static_cast<std::size_t>(
        std::count_if(records.begin(), records.end(), [&](const trace::Record& record) {
          return record.step == last || record.kind == trace::Kind::collective;
        }));
  }

  const StepOptions& options_;
  std::vector<RecordingCost> costs_;
  SideTurns turns_;
  std::exception_ptr cause_;
};

}  // namespace

std::vector<RecordingCost> measure_recording(const StepOptions& options) {
  return TwoJobs{options}.run();
}

}  // namespace tessera::bench
