#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/profile/plan.hpp"
#include "tessera/torch/meta.hpp"
#include "tessera/torch/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::torch {

/// The training of a module that `plan` counts for.
struct TrainingJob {
  /// The ranks, and the options of their Worlds: `world.budget_bytes` is the limit of the plan.
  PlanOptions ranks = {};
  /// How the module is sharded.
  ShardOptions shard = {};
  /// The optimizer, whose state counts.
  Optimizer optimizer = AdamW{};
  /// The optimizer's options.
  OptimizerOptions optimizer_options = {};
  /// The backward passes of a step for each micro-batch: 2 for a critic that is trained on real and
  /// on made samples. Where gradients are reduced in place (ddp, units kept whole), the second one
  /// of a step takes slots.
  int backward_passes = 1;
  /// What a rank's passes need beside the model: the result of `measure_activations`. Without it
  /// the plan counts states and slots only.
  std::optional<std::size_t> measured_activations = {};
};

/// The memory of each rank that trains a module.
struct TrainingPlan {
  /// The ranks, in groups that hold the same. States and slots are exact. Activations are those
  /// that were measured.
  std::vector<PlannedRank> ranks;
  /// Whether activations were measured; if not, `ranks` has none.
  bool has_activations = false;

  /// Returns a line for each group of ranks: its peak by category, and which number was measured;
  /// then what was decided about its memory, such as units that are kept whole.
  [[nodiscard]] std::string text() const;
};

/// Plans as `plan` below does, for a module on the meta device that `on_meta_module` makes.
[[nodiscard]] TrainingPlan plan_module(
    const std::function<std::shared_ptr<::torch::nn::Module>()>& on_meta_module,
    const TrainingJob& job);

/// Counts the memory that each rank would hold to train the module that `build` returns: a module
/// holder (TORCH_MODULE) or a shared pointer. `build` runs on the meta device (on_meta), so that
/// the module may be larger than this machine. States and slots are those of `shard` and
/// `optimize_with` to the byte; no formula is involved. Measured activations are added in the
/// passes.
///
///     const auto activations = tessera::torch::measure_activations(build, [](auto& model) {
///       model.backward(loss_of(model(torch::ones({rows, 2}))));
///     });
///     const auto plan = tessera::torch::plan(
///         build, {.ranks = {.ranks = 4}, .measured_activations = activations});
///     std::puts(plan.text().c_str());
///
/// Errors: OutOfMemory if `job.ranks.world.budget_bytes` does not suffice, for states, slots and
///         activations together; its text lists them. Otherwise as tessera::plan and `shard`.
template <class Build>
[[nodiscard]] TrainingPlan plan(Build build, const TrainingJob& job) {
  return plan_module(
      [&]() -> std::shared_ptr<::torch::nn::Module> {
        auto module = on_meta(build);
        if constexpr (requires { module.ptr(); }) {
          return module.ptr();
        } else {
          return module;
        }
      },
      job);
}

/// Returns the most bytes of activations while `model` makes its passes: of `report`, the report
/// of the World of a model that has made one.
[[nodiscard]] std::size_t activations_of_passes(const MemoryReport& report);

/// Measures the activations of a step: builds the module, shards it on one rank, a thread, and
/// calls `first_step(model)`, which makes the forward and backward pass of one micro-batch. Returns
/// the most bytes that libtorch held at once in the passes, including the batch. A rank of a larger
/// job with as many samples holds the same, under every strategy.
///
/// Memory: the whole module and its gradients must fit into this machine.
/// Errors: as `shard` and `first_step`. ContractError if `first_step` makes no pass.
template <class Build, class FirstStep>
[[nodiscard]] std::size_t measure_activations(Build build, FirstStep first_step,
                                              const ShardOptions& options = {}) {
  std::size_t bytes = 0;
  run_ranks(1, [&](World& world) {
    auto model = shard(build(), world, options);
    model.optimize_with(SGD{});  // which keeps no state
    first_step(model);
    bytes = activations_of_passes(world.memory().report());
  });
  return bytes;
}

}  // namespace tessera::torch
