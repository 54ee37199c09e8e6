#include "tessera/torch/plan.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "torch/work.hpp"

namespace tessera::torch {

namespace {

constexpr const char* kMeasured = "activations, as measured";

// The scopes of one pass, in the order of the module: a unit that contains others stays open
// around them, as in a pass that computes.
class SimulatedPass {
 public:
  explicit SimulatedPass(ShardedModule::Work& work) : work_{work}, inner_(work.units.size()) {
    for (std::size_t i = 0; i < work.units.size(); ++i) {
      const std::optional<std::size_t> parent = work.units[i].parent;
      (parent ? inner_[*parent] : outermost_).push_back(i);
    }
  }

  void forward() {
    for (const std::size_t i : outermost_) { forward_of(i); }
  }
  void backward() {
    for (auto i = outermost_.rbegin(); i != outermost_.rend(); ++i) { backward_of(*i); }
  }

 private:
  void forward_of(std::size_t i) {
    const OpenScope open = work_.model.open_any(work_.model.unit(i), /*backward=*/false);
    for (const std::size_t inner : inner_[i]) { forward_of(inner); }
  }
  void backward_of(std::size_t i) {
    const OpenScope open = work_.model.open_any(work_.model.unit(i), /*backward=*/true);
    for (auto inner = inner_[i].rbegin(); inner != inner_[i].rend(); ++inner) {
      backward_of(*inner);
    }
    for (const ModuleParameter& parameter : work_.units[i].parameters) {
      if (parameter.tensor.requires_grad()) { static_cast<void>(open.grad(parameter.name)); }
    }
  }

  ShardedModule::Work& work_;
  std::vector<std::size_t> outermost_;
  std::vector<std::vector<std::size_t>> inner_;  // by unit
};

void train_once(World& world, std::shared_ptr<::torch::nn::Module> module, const TrainingJob& job) {
  ShardedModule::Work work{std::move(module), world, job.shard};
  work.model.optimize_with(job.optimizer, job.optimizer_options);
  SimulatedPass pass{work};
  if (job.backward_passes < 1) {
    throw ConfigError{"`backward_passes` " + std::to_string(job.backward_passes) +
                      " of a step: a step has 1 or more"};
  }
  for (int i = 0; i < job.shard.model.accumulate * job.backward_passes; ++i) {
    pass.forward();
    CountedMemory activations;
    if (job.measured_activations) {
      // The module itself has some already: a sum of losses.
      const std::size_t own = world.memory().report().live[Category::activations];
      const std::size_t all = std::max(*job.measured_activations, own);
      activations = world.memory().register_memory(Category::activations, all - own, kMeasured);
    }
    pass.backward();
  }
  work.model.step();
}

}  // namespace

TrainingPlan plan_module(
    const std::function<std::shared_ptr<::torch::nn::Module>()>& on_meta_module,
    const TrainingJob& job) {
  return {.ranks = tessera::plan(job.ranks,
                                 [&](World& world) { train_once(world, on_meta_module(), job); }),
          .has_activations = job.measured_activations.has_value()};
}

std::string TrainingPlan::text() const {
  std::string text;
  for (const PlannedRank& group : ranks) {
    text += group.count == 1 ? "rank " + std::to_string(group.rank)
                             : "ranks " + std::to_string(group.rank) + "-" +
                                   std::to_string(group.rank + group.count - 1);
    text += ": " + describe(group.memory.at_peak) +
            (has_activations ? " (activations as measured)\n" : " (activations not measured)\n");
    for (const std::string& note : group.notes) { text += "  " + note + "\n"; }
  }
  return text;
}

std::size_t activations_of_passes(const MemoryReport& report) {
  std::size_t most = 0;
  for (const trace::Phase phase : {trace::Phase::forward, trace::Phase::backward}) {
    most = std::max(most, report.by_phase[static_cast<std::size_t>(phase)].live_bytes);
  }
  if (most == 0) {
    throw ContractError{
        "measure_activations: first_step makes no pass of the model; call model.backward(loss) in "
        "it"};
  }
  const bool in_passes = report.peak_bytes == most;
  return in_passes ? report.at_peak[Category::activations]
                   : most - (report.live.total() - report.live[Category::activations]);
}

}  // namespace tessera::torch
