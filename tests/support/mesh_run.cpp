#include "support/mesh_run.hpp"

#include <algorithm>
#include <cmath>

#include "support/sample_documents.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test {
namespace {

using Tokens = std::vector<std::int32_t>;

// Learnable tokens.
Tokens tokens_of(const MeshRun& run, int step, std::int64_t first_sample, int shift) {
  Tokens tokens;
  for (std::int64_t sample = first_sample; sample < first_sample + run.batch; ++sample) {
    for (std::int64_t t = 0; t < run.config.seq; ++t) {
      const std::int64_t at = t + shift + 17 * sample + std::int64_t{5} * step;
      tokens.push_back(static_cast<std::int32_t>((at * 7 + at / 3) % run.config.vocab));
    }
  }
  return tokens;
}

std::map<std::string, std::vector<float>> named(ShardedModel& model, StateTensor what) {
  std::map<std::string, std::vector<float>> all;
  model.export_state(what, [&](const ParameterInfo& parameter, std::span<const float> values) {
    all[nn::gpt2_weight_name(parameter)].assign(values.begin(), values.end());
  });
  return all;
}

/// Makes means over all targets of the first step means over those that count, as the step does.
void divide_by_counted(const MeshRun& run, std::map<std::string, std::vector<float>>& gradients) {
  const std::int64_t samples = run.batch * run.options.accumulate * data_ranks_of(run);
  Tokens targets(static_cast<std::size_t>(samples * run.config.seq));
  static_cast<void>(documents_of(run.gpt, targets, run.config.seq, 0));
  const auto counted = std::ssize(targets) - std::ranges::count(targets, kIgnoredTarget);
  const double weight = static_cast<double>(targets.size()) / static_cast<double>(counted);
  for (auto& [name, values] : gradients) {
    for (float& value : values) { value = static_cast<float>(weight * double{value}); }
  }
}

void train_rank(const MeshRun& run, World& world, MeshOutcome& outcome) {
  const bool sees = world.rank() == 0;
  const int data_rank =
      run.options.mesh.empty() ? 0 : MeshShape{run.options.mesh}.data_index(world.rank());
  auto gpt = shard(nn::Decoder{run.config, run.gpt}, world, run.options);
  gpt.materialize(/*seed=*/3);
  gpt.optimize_with(run.optimizer, {.clip_norm = 1.0F});
  gpt.module().reserve(run.batch);
  {
    const Tokens inputs = tokens_of(run, -1, 100 + data_rank, 0);
    Tokens targets = tokens_of(run, -1, 100 + data_rank, 1);
    const Tokens documents = documents_of(run.gpt, targets, run.config.seq, 100 + data_rank);
    const double loss = gpt.module().evaluate({inputs, targets, documents});
    outcome.evaluated[static_cast<std::size_t>(world.rank())] = loss;
  }
  for (int step = 0; step < run.steps; ++step) {
    std::vector<Tokens> alive;  // until the stream has used them
    alive.reserve(3 * static_cast<std::size_t>(run.options.accumulate));
    gpt.run([&](int micro) -> nn::MicroBatch {
      const std::int64_t first = (micro * data_ranks_of(run) + data_rank) * run.batch;
      const Tokens& inputs = alive.emplace_back(tokens_of(run, step, first, 0));
      Tokens& targets = alive.emplace_back(tokens_of(run, step, first, 1));
      const Tokens& documents =
          alive.emplace_back(documents_of(run.gpt, targets, run.config.seq, first + step));
      return {inputs, targets, documents};
    });
    if (step == 0) {
      auto gradients = named(gpt.model(), StateTensor::gradients);
      if (run.gpt.masked) { divide_by_counted(run, gradients); }
      if (sees) { outcome.seen.first_gradients = std::move(gradients); }
    }
    gpt.step();
    const StepReport report = gpt.report();
    if (!sees) { continue; }
    outcome.seen.losses.push_back(report.loss);
    outcome.seen.norms.push_back(report.grad_norm);
  }
  auto parameters = named(gpt.model(), StateTensor::parameters);
  if (sees) { outcome.seen.parameters = std::move(parameters); }
  outcome.memory[static_cast<std::size_t>(world.rank())] = world.memory().report();
}

MeshOutcome no_outcome(const MeshRun& run) {
  const auto ranks = static_cast<std::size_t>(ranks_of(run));
  return {.seen = {},
          .evaluated = std::vector<double>(ranks),
          .memory = std::vector<MemoryReport>(ranks)};
}

}  // namespace

int ranks_of(const MeshRun& run) {
  return run.options.mesh.empty() ? 1 : MeshShape{run.options.mesh}.ranks();
}

int data_ranks_of(const MeshRun& run) {
  return run.options.mesh.empty() ? 1 : MeshShape{run.options.mesh}.data_ranks();
}

MeshRun on_one_rank(const MeshRun& run) {
  MeshRun one = run;
  one.options.mesh.clear();
  one.options.accumulate *= data_ranks_of(run);
  one.options.accumulate_mode = AccumulateMode::automatic;
  one.options.strategy = Strategy::ddp;
  one.options.offload = Offload::none;
  one.gpt = {.norms = run.gpt.norms,
             .dropout = run.gpt.dropout,
             .packed = run.gpt.packed,
             .masked = run.gpt.masked};
  return one;
}

MeshOutcome train_on(const MeshRun& run, const StartRanks& start) {
  MeshOutcome outcome = no_outcome(run);
  start(ranks_of(run), [&](World& world) { train_rank(run, world, outcome); }, run.world);
  return outcome;
}

MeshOutcome train_on(const MeshRun& run) {
  return train_on(run, run_ranks);
}

MemoryReport planned_on(const MeshRun& run, int rank, CommKind comm) {
  MeshOutcome outcome = no_outcome(run);
  simulate_rank(
      {.rank = rank, .ranks = ranks_of(run), .backend = {.device = run.world.device, .comm = comm}},
      [&](World& world) { train_rank(run, world, outcome); }, run.world);
  return outcome.memory[static_cast<std::size_t>(rank)];
}

FarthestTensor farthest(const std::map<std::string, std::vector<float>>& a,
                        const std::map<std::string, std::vector<float>>& b) {
  FarthestTensor most{.difference = a.size() == b.size() && !a.empty() ? 0.0 : HUGE_VAL,
                      .name = {}};
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) { return {HUGE_VAL, name}; }
    double largest = 0.0;
    double difference = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max<double>(largest, std::fabs(values[i]));
      difference = std::max(difference, std::fabs(double{values[i]} - double{other->second[i]}));
    }
    const double relative = difference == 0.0 ? 0.0 : difference / largest;
    if (!(relative <= most.difference)) { most = {relative, name}; }
  }
  return most;
}

}  // namespace tessera::test
