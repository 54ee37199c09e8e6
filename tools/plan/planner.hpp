#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/profile/plan.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// A PlannedRank and the part of its memory that is model state.
struct RankPlan {
  int rank = 0;                 ///< first of the ranks that hold the same
  int count = 1;                ///< ranks that hold the same
  std::vector<int> ranks = {};  ///< all of these ranks, in ascending order
  MemoryReport memory;
  ModelStateBytes state;
  std::size_t host_peak_bytes = 0;  ///< of its host pool
};

/// The plan of a whole job under one strategy.
struct StrategyPlan {
  Strategy strategy{};
  std::vector<RankPlan> ranks;  ///< the distinct kinds, by place along the mesh's pipe and tensor

  /// The kind of rank with the highest peak.
  [[nodiscard]] const RankPlan& fullest() const;
  /// The kind of rank `rank`.
  [[nodiscard]] const RankPlan& of(int rank) const;
};

/// What each rank of a run of `settings` under `strategy` would hold, found by running it on the
/// meta device, without its files. `ranks` replaces settings.ranks, and `model` replaces the model
/// that the settings name; settings.comm is the ranks' communicator. If settings.steps is 0, the
/// run only saves its initial state.
///
/// Errors: ConfigError if the options contradict each other; OutOfMemory for sizes beyond any
/// machine.
[[nodiscard]] std::vector<RankPlan> plan_training(const Settings& settings, const NamedModel& model,
                                                  Strategy strategy, int ranks);
/// The same if no rank holds more than `limit_bytes`, else empty. Stops as soon as a rank exceeds
/// the limit, long before the end of a plan of many layers.
[[nodiscard]] std::optional<std::vector<RankPlan>> plan_training_within(std::size_t limit_bytes,
                                                                        const Settings& settings,
                                                                        const NamedModel& model,
                                                                        Strategy strategy,
                                                                        int ranks);

/// The same for a run that samples tokens from the model (Purpose::inference).
[[nodiscard]] std::vector<RankPlan> plan_sampling(const Settings& settings, const NamedModel& model,
                                                  Strategy strategy, int ranks);

/// The same for a model of `parameters` parameters in a stack of equal units (64, or fewer if
/// there are fewer parameters) without activations: only model states and slots.
[[nodiscard]] std::vector<RankPlan> plan_stack(const Settings& settings, std::int64_t parameters,
                                               Strategy strategy, int ranks);

/// Declares the units of plan_stack's model, materialises it and gives it an optimizer. Each place
/// along `pipe` holds consecutive units, and each along `tensor` a part of every unit. Returns the
/// units of `rank`.
[[nodiscard]] std::vector<Unit> make_stack(ShardedModel& model, const Settings& settings,
                                           std::int64_t parameters, int rank);

/// The plan of the model that `settings` name: plan_stack for `--params`, else plan_training.
[[nodiscard]] StrategyPlan plan_asked(const Settings& settings, Strategy strategy);
/// The same if no rank holds more than `limit_bytes`, else empty; see plan_training_within.
[[nodiscard]] std::optional<StrategyPlan> plan_asked_within(std::size_t limit_bytes,
                                                            const Settings& settings,
                                                            Strategy strategy);

/// What a rank holds under any strategy for its micro-batches: activations and their workspace. 0
/// for `--params`. ConfigError for an impossible micro-batch.
[[nodiscard]] std::size_t activation_bytes(const Settings& settings);

/// The communicator of `ranks` ranks: as `--comm` says; for `auto` threads, or processes (mpi, nccl
/// on CUDA) if there are more ranks than one process can run as threads.
[[nodiscard]] CommKind planned_comm(const Settings& settings, int ranks);

}  // namespace tessera::tools
