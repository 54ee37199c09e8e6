#include "bench/support/step.hpp"

#include <memory>

#include "bench/support/gpt_runner.hpp"

namespace tessera::bench {
namespace {

constexpr int kUntimedRounds = 2;  // the first step gathers without prefetch
constexpr int kTracedSteps = 3;

using Runners = std::vector<std::unique_ptr<GptRunner>>;

Runners make_runners(World& world, const StepOptions& options) {
  Runners runners;
  for (const Strategy strategy : options.strategies) {
    runners.push_back(std::make_unique<GptRunner>(world, options, strategy));
  }
  return runners;
}

double seconds_of(const trace::Record& record) {
  return static_cast<double>(record.end_ns - record.begin_ns) * 1e-9;
}

Shares shares_of(const std::vector<trace::Record>& records, double seconds) {
  Shares shares;
  for (const trace::Record& record : records) {
    const double part = seconds_of(record) / seconds;
    if (record.kind == trace::Kind::collective) { shares.moving += part; }
    if (record.kind != trace::Kind::compute) { continue; }
    double& share = record.what == "forward"    ? shares.forward
                    : record.what == "backward" ? shares.backward
                                                : shares.update;
    share += part;
  }
  shares.waiting = 1.0 - shares.forward - shares.backward - shares.update;
  return shares;
}

Shares traced_shares(World& world, GptRunner& runner) {
  for (int i = 0; i < kUntimedRounds; ++i) { runner.step(); }
  world.barrier();
  world.recorder()->clear();
  double seconds = 0;
  for (int i = 0; i < kTracedSteps; ++i) { seconds += runner.timed_step(); }
  return shares_of(world.recorder()->records(), seconds);
}

void measure_shares(const StepOptions& options, std::vector<StrategySteps>& results) {
  WorldOptions traced;
  traced.trace = true;
  run_ranks(
      options.ranks,
      [&](World& world) {
        for (StrategySteps& result : results) {
          GptRunner runner{world, options, result.strategy};
          const Shares shares = traced_shares(world, runner);
          if (world.rank() == 0) { result.shares = shares; }
        }
      },
      traced);
}

double timed_products(World& world, ModelProducts& products) {
  world.barrier();
  const double begin = now();
  products.run();
  world.barrier();
  return seconds_since(begin);
}

/// `rounds` steps of each strategy after two untimed ones, from rank 0.
std::vector<Series> steps_on_rank(World& world, const StepOptions& options, int rounds) {
  const Runners runners = make_runners(world, options);
  std::vector<Series> series(runners.size());
  for (int round = -kUntimedRounds; round < rounds; ++round) {
    for (std::size_t i = 0; i < runners.size(); ++i) {
      const double seconds = runners[i]->timed_step();
      if (round >= 0) { series[i].seconds.push_back(seconds); }
    }
  }
  return series;
}

}  // namespace

double step_flops(const nn::GPTConfig& model, std::int64_t batch) {
  const auto layers = static_cast<double>(model.layers);
  const auto hidden = static_cast<double>(model.hidden);
  const auto seq = static_cast<double>(model.seq);
  const double token = 24 * layers * hidden * hidden + 4 * layers * seq * hidden +
                       2 * hidden * static_cast<double>(model.vocab);
  return 3 * static_cast<double>(batch) * seq * token;
}

double StepResult::limit_ratio(const StrategySteps& steps) const {
  return flops / product_flops * median_ratio(products, steps.series);
}

StepResult measure_step(const StepOptions& options) {
  StepResult result;
  result.flops = step_flops(options.model, options.batch);
  for (const Strategy strategy : options.strategies) {
    result.strategies.push_back({strategy, {}, {}, {}});
  }
  run_ranks(options.ranks, [&](World& world) {
    const Runners runners = make_runners(world, options);
    ModelProducts products{world, options};
    for (int round = -kUntimedRounds; round < options.rounds; ++round) {
      std::vector<double> seconds;
      std::vector<double> cpu;
      for (const auto& runner : runners) {
        const double used = cpu_now();
        seconds.push_back(runner->timed_step());
        cpu.push_back((cpu_now() - used) / options.ranks);
      }
      const double limit = timed_products(world, products);
      if (world.rank() != 0 || round < 0) { continue; }
      for (std::size_t i = 0; i < seconds.size(); ++i) {
        result.strategies[i].series.seconds.push_back(seconds[i]);
        result.strategies[i].cpu.seconds.push_back(cpu[i]);
      }
      result.products.seconds.push_back(limit);
    }
    if (world.rank() == 0) { result.product_flops = products.flops(); }
  });
  measure_shares(options, result.strategies);
  return result;
}

std::vector<ScalingPoint> measure_scaling(const ScalingOptions& options) {
  constexpr int steps = 3;  // of each strategy in a round
  std::vector<ScalingPoint> points;
  for (const int ranks : options.ranks) {
    ScalingPoint& point = points.emplace_back(ScalingPoint{ranks, {}});
    for (const Strategy strategy : options.step.strategies) {
      point.strategies.push_back({strategy, {}, {}, {}});
    }
  }
  for (int round = 0; round < options.step.rounds; ++round) {
    for (ScalingPoint& point : points) {
      StepOptions one = options.step;
      one.ranks = point.ranks;
      one.batch = options.step.batch / point.ranks;
      run_ranks(point.ranks, [&](World& world) {
        const std::vector<Series> series = steps_on_rank(world, one, steps);
        if (world.rank() != 0) { return; }
        for (std::size_t i = 0; i < series.size(); ++i) {
          point.strategies[i].series.seconds.push_back(series[i].median());
        }
      });
    }
  }
  return points;
}

}  // namespace tessera::bench
