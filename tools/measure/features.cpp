#include "tools/measure/features.hpp"

#include <array>
#include <functional>
#include <memory>

#include "tessera/world/run.hpp"
#include "tools/measure/gpt_runner.hpp"

namespace tessera::bench {
namespace {

struct Feature {
  const char* name;
  std::function<void(RunnerOptions&)> apply;
};

const std::array<Feature, kFeatureSteps>& features() {
  static const std::array<Feature, kFeatureSteps> all{{
      {"plain fp32", [](RunnerOptions&) {}},
      {"clip 1.0", [](RunnerOptions& run) { run.optimizer.clip_norm = 1.0F; }},
      {"recompute block", [](RunnerOptions& run) { run.gpt.recompute = nn::Recompute::block(); }},
      {"bf16 on the wire", [](RunnerOptions& run) { run.model.reduce = DType::bf16; }},
      {"bf16", [](RunnerOptions& run) { run.model.compute = DType::bf16; }},
      {"fp16", [](RunnerOptions& run) { run.model.compute = DType::fp16; }},
      {"checks off (again)", [](RunnerOptions&) {}},
      {"checks strict", [](RunnerOptions& run) { run.model.checks = Checks::strict; }},
      {"checks memory", [](RunnerOptions& run) { run.model.checks = Checks::memory; }},
  }};
  return all;
}

RunnerOptions with(const Feature& feature, const StepOptions& options, Strategy strategy) {
  RunnerOptions run = runner_options(options, strategy);
  feature.apply(run);
  return run;
}

FeatureCosts empty_costs(Strategy strategy) {
  FeatureCosts costs{strategy, {}};
  for (const Feature& feature : features()) { costs.features.emplace_back().name = feature.name; }
  return costs;
}

void time_in_turn(World& world, const StepOptions& options, FeatureCosts& costs) {
  std::vector<std::unique_ptr<GptRunner>> runners;
  for (const Feature& feature : features()) {
    runners.push_back(
        std::make_unique<GptRunner>(world, options, with(feature, options, costs.strategy)));
  }
  for (int round = -kUntimedRounds; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < runners.size(); ++i) {
      const double used = cpu_now();
      const double seconds = runners[i]->timed_step();
      if (world.rank() != 0 || round < 0) { continue; }
      costs.features[i].series.seconds.push_back(seconds);
      costs.features[i].cpu.seconds.push_back(cpu_now() - used);
    }
  }
}

std::size_t reduced_bytes(const std::vector<trace::Record>& records) {
  std::size_t bytes = 0;
  for (const trace::Record& record : records) {
    if (record.kind != trace::Kind::collective || record.stream != "reduce") { continue; }
    if (!record.unit.starts_with("step")) {
      bytes += record.bytes;
    }  // excludes the norms and the loss
  }
  return bytes;
}

void count_bytes(World& world, const StepOptions& options, FeatureCosts& costs) {
  for (std::size_t i = 0; i < features().size(); ++i) {
    GptRunner runner{world, options, with(features()[i], options, costs.strategy)};
    runner.step();
    world.barrier();
    world.recorder()->clear();
    runner.step();
    world.barrier();
    if (world.rank() != 0) { continue; }
    costs.features[i].reduced_bytes = reduced_bytes(world.recorder()->records());
  }
}

}  // namespace

std::vector<FeatureCosts> measure_features(const StepOptions& options) {
  std::vector<FeatureCosts> all;
  WorldOptions traced;
  traced.trace = true;
  for (const Strategy strategy : options.strategies) {
    FeatureCosts& costs = all.emplace_back(empty_costs(strategy));
    run_ranks(options.ranks, [&](World& world) { time_in_turn(world, options, costs); });
    run_ranks(options.ranks, [&](World& world) { count_bytes(world, options, costs); }, traced);
  }
  return all;
}

}  // namespace tessera::bench
