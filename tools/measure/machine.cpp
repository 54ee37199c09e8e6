#include "tools/measure/machine.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <map>
#include <thread>
#include <tuple>

#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"
#include "tools/measure/collectives.hpp"
#include "tools/measure/gpt_runner.hpp"
#include "tools/measure/timing.hpp"

namespace tessera::bench {
namespace {

constexpr int kLayers = 2;
constexpr int kRepeats = 10;  // consecutive calls of a collective
constexpr std::int64_t kSmall = 4 << 10;
constexpr std::int64_t kLarge = 8 << 20;

struct ByKind {
  bool operator()(const trace::KernelWork& a, const trace::KernelWork& b) const {
    return std::tie(a.name, a.dtype, a.sizes) < std::tie(b.name, b.dtype, b.sizes);
  }
};
using Times = std::map<trace::KernelWork, std::vector<double>, ByKind>;

struct Steps {
  Times kernels;
  std::vector<double> rest;  ///< seconds of each step outside of kernels
};

/// Times fills of memory, which a step also makes, and logs them like kernels.
void time_fills(World& world, Times& times) {
  Buffer buffer = world.allocate(Category::workspace, kLarge, "fills");
  for (std::size_t bytes = kSmall; bytes <= kLarge; bytes *= 8) {
    const double begin = now();
    world.device().fill(buffer.data(), 0, bytes, world.compute_stream());
    times[{.name = "fill",
           .bytes = static_cast<double>(bytes),
           .sizes = {static_cast<std::int64_t>(bytes), 0, 0}}]
        .push_back(seconds_since(begin));
  }
}

void time_steps(World& world, const TimedModel& model, int rounds, Steps& steps) {
  RunnerOptions run = runner_options(model.step, Strategy::ddp);
  run.model.compute = model.dtype;
  GptRunner runner{world, model.step, run};
  for (int i = 0; i < kUntimedRounds; ++i) { runner.step(); }
  const trace::WorkLog& log = *world.work_log();
  for (int round = 0; round < rounds; ++round) {
    std::size_t entry = log.entries().size();
    double rest = runner.timed_step();
    for (; entry < log.entries().size(); ++entry) {
      const trace::WorkEntry& one = log.entries()[entry];
      steps.kernels[log.kernels()[one.index]].push_back(one.seconds);
      rest -= one.seconds;
    }
    steps.rest.push_back(std::max(rest, 0.0));
    time_fills(world, steps.kernels);
  }
}

WorldOptions logged() {
  WorldOptions options;
  options.log_work = true;
  return options;
}

/// Runs `jobs` jobs of one rank each at the same time; returns the steps of all.
Steps steps_of(const TimedModel& model, int rounds, int jobs) {
  std::vector<Steps> all(static_cast<std::size_t>(jobs));
  std::barrier start{jobs};
  std::vector<std::thread> threads;
  for (Steps& steps : all) {
    threads.emplace_back([&model, rounds, &steps, &start] {
      run_ranks(
          1,
          [&](World& world) {
            start.arrive_and_wait();
            time_steps(world, model, rounds, steps);
          },
          logged());
    });
  }
  for (std::thread& thread : threads) { thread.join(); }
  Steps joined;
  for (Steps& steps : all) {
    for (auto& [work, times] : steps.kernels) {
      auto& to = joined.kernels[work];
      to.insert(to.end(), times.begin(), times.end());
    }
    joined.rest.insert(joined.rest.end(), steps.rest.begin(), steps.rest.end());
  }
  return joined;
}

/// The number of operations that a step of the model enqueues: kernels and everything else.
std::size_t entries_of(const TimedModel& model) {
  std::size_t entries = 0;
  simulate_rank(
      {.rank = 0, .ranks = 1, .backend = {}},
      [&](World& world) {
        RunnerOptions run = runner_options(model.step, Strategy::ddp);
        run.model.compute = model.dtype;
        GptRunner runner{world, model.step, run};
        runner.step();
        entries = world.work_log()->entries().size();
        runner.step();
        entries = world.work_log()->entries().size() - entries;
      },
      logged());
  return entries;
}

double quartile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

double spread_of(const Times& times) {
  std::vector<std::pair<double, double>> by_time;  // total seconds, spread
  double all = 0;
  for (const auto& [work, values] : times) {
    double sum = 0;
    for (const double value : values) { sum += value; }
    by_time.emplace_back(sum,
                         (quartile(values, 0.75) - quartile(values, 0.25)) / quartile(values, 0.5));
    all += sum;
  }
  std::sort(by_time.rbegin(), by_time.rend());
  std::vector<double> spreads;
  double sum = 0;
  for (const auto& [seconds, spread] : by_time) {
    spreads.push_back(spread);
    sum += seconds;
    if (sum > 0.9 * all) { break; }
  }
  return median_of(spreads);
}

/// Seconds of each collective, in the order of all_collectives().
std::vector<double> collective_times(std::int64_t bytes, int ranks, int rounds) {
  CollectivePlace place = host_memory();
  place.repeats = kRepeats;
  std::vector<double> seconds;
  for (const Comparison& one :
       measure_collectives(all_collectives(), {bytes, ranks, rounds}, place)) {
    seconds.push_back(one.ours.series.median() / kRepeats);
  }
  return seconds;
}

// all_gather and reduce_scatter synchronise twice, all_reduce three times.
double meeting_seconds(const std::vector<double>& small) {
  return median_of({small[0] / 2, small[1] / 2, small[2] / 3});
}

void measure_collectives(const MachineOptions& options, MachineProfile& profile) {
  const std::vector<double> two = collective_times(kSmall, 2, options.rounds);
  const std::vector<double> four = collective_times(kSmall, 4, options.rounds);
  const std::vector<double> large = collective_times(kLarge, 2, options.rounds);
  const double step = std::max((meeting_seconds(four) - meeting_seconds(two)) / 2, 0.0);
  const double start = std::max(meeting_seconds(two) - 2 * step, 0.0);
  const auto rate = [&](std::size_t c) {
    return static_cast<double>(kLarge) / std::max(large[c] - two[c], 1e-9);
  };
  profile.way = CollectiveWay::direct;
  profile.protocols = {{"local", 1.0, start}};
  profile.levels = {{"machine", 0, rate(0), {step}}};
  profile.reduce_bytes_per_second = rate(1);
}

/// Sets the rate of each dtype's fastest product, and the bandwidth of the largest update.
void set_rates(MachineProfile& profile) {
  double largest = 0;
  for (const KernelSample& sample : profile.kernels) {
    if (sample.work.name.starts_with("matmul")) {
      double& rate = profile.flops_per_second[sample.work.dtype];
      rate = std::max(rate, sample.work.flops / sample.seconds);
    }
    if (sample.work.name == "adamw" && sample.work.bytes > largest) {
      largest = sample.work.bytes;
      profile.bytes_per_second = sample.work.bytes / sample.seconds;
    }
  }
}

}  // namespace

std::vector<TimedModel> machine_models(std::int64_t widest) {
  std::vector<TimedModel> models;
  const auto add = [&](std::int64_t hidden, std::int64_t batch, DType dtype) {
    TimedModel model;
    model.step.model = {.layers = kLayers, .hidden = hidden, .heads = 4, .vocab = 1024, .seq = 128};
    model.step.batch = batch;
    model.dtype = dtype;
    models.push_back(model);
  };
  for (std::int64_t hidden = 64; hidden <= widest; hidden *= 2) {
    for (const std::int64_t batch : {2, 8}) { add(hidden, batch, DType::fp32); }
  }
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    add(std::max<std::int64_t>(widest / 2, 32), 8, dtype);
  }
  return models;
}

MeasuredMachine measure_machine(const MachineOptions& options) {
  MeasuredMachine measured;
  MachineProfile& profile = measured.profile;
  profile.cores = options.cores;
  Times alone;
  Times shared;
  std::vector<double> enqueue;
  for (const TimedModel& model : options.models) {
    Steps one = steps_of(model, options.rounds, 1);
    Steps all = steps_of(model, options.rounds, options.cores);
    enqueue.push_back(median_of(one.rest) / static_cast<double>(entries_of(model)));
    alone.merge(one.kernels);
    shared.merge(all.kernels);
  }
  for (const auto& [work, times] : alone) {
    profile.kernels.push_back({work, median_of(times), median_of(shared.at(work))});
    measured.times += times.size();
  }
  profile.enqueue_seconds = median_of(enqueue);
  measured.spread = spread_of(shared);
  set_rates(profile);
  measure_collectives(options, profile);
  return measured;
}

}  // namespace tessera::bench
