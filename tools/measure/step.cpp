#include "tools/measure/step.hpp"

#include "tessera/world/run.hpp"
#include "tools/measure/gpt_runner.hpp"

namespace tessera::bench {
namespace {

constexpr int kTracedSteps = 3;

double seconds_of(const trace::Record& record) {
  return static_cast<double>(record.end_ns - record.begin_ns) * 1e-9;
}

Shares shares_of(const std::vector<trace::Record>& records, double seconds) {
  Shares shares;
  for (const trace::Record& record : records) {
    const double part = seconds_of(record) / seconds;
    if (record.kind == trace::Kind::collective) { shares.moving += part; }
    // The updates of single units are part of the step's update.
    const bool within = record.what == "update" && !record.unit.empty();
    if (record.kind != trace::Kind::compute || within) { continue; }
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

}  // namespace

double step_flops(const nn::DecoderConfig& model, std::int64_t batch) {
  const auto layers = static_cast<double>(model.layers);
  const auto hidden = static_cast<double>(model.hidden);
  const auto seq = static_cast<double>(model.seq);
  const auto queries = static_cast<double>(model.heads * model.head_size());
  const auto keys = static_cast<double>(model.key_heads() * model.head_size());
  const double mlp = (model.gated() ? 3 : 2) * static_cast<double>(model.mlp_elems());
  const double token = layers * 2 * hidden * (2 * queries + 2 * keys + mlp) +
                       4 * layers * seq * queries + 2 * hidden * static_cast<double>(model.vocab);
  return 3 * static_cast<double>(batch) * seq * token;
}

double StepResult::limit_ratio(const StrategySteps& steps) const {
  return flops / product_flops * median_ratio(products, steps.series);
}

StepResult measure_step(const StepOptions& options) {
  StepResult result;
  result.flops = step_flops(options.model, options.batch);
  for (const Strategy strategy : options.strategies) {
    result.strategies.push_back({strategy, {}, {}, {}, 0});
  }
  run_ranks(options.ranks, [&](World& world) {
    const auto runners = make_runners(world, options);
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
    for (std::size_t i = 0; i < runners.size(); ++i) {
      const double loss = runners[i]->loss();
      if (world.rank() == 0) { result.strategies[i].loss = loss; }
    }
    if (world.rank() == 0) { result.product_flops = products.flops(); }
  });
  measure_shares(options, result.strategies);
  return result;
}

}  // namespace tessera::bench
