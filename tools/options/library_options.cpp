#include "tools/options/library_options.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tools/options/optimizer.hpp"
#include "tools/options/option_words.hpp"
#include "tools/options/resharding.hpp"

namespace tessera::tools {

WorldOptions world_options(const Settings& settings) {
  WorldOptions options;
  options.device = settings.device;
  options.threads = settings.threads;
  constexpr double ms_a_second = 1000;
  options.deadline =
      std::chrono::milliseconds{std::max(std::llround(settings.deadline * ms_a_second), 1LL)};
  options.budget_bytes = settings.budget_bytes;
  options.deterministic = settings.deterministic;
  options.products = settings.products;
  options.tuning.channel_priority = settings.channel_priority;
  options.tuning.spared_multiprocessors = settings.spared_multiprocessors;
  options.nccl = settings.nccl;
  options.nondeterministic_attention = settings.nondeterministic_attention;
  options.trace = settings.records();
  options.host_threads = settings.host_threads;
  return options;
}

ModelOptions model_options(const Settings& settings, Strategy strategy) {
  ModelOptions options;
  options.strategy = strategy;
  options.mesh = settings.mesh;
  if (strategy == Strategy::hybrid) { options.shard_group = settings.shard_group; }
  options.compute = settings.precision;
  options.master_weights = settings.master_weights;
  options.gradient = settings.gradient_dtype;
  options.reduce = settings.reduce_dtype;
  if (settings.moments == MomentFormat::int8) { options.align_elems = kMomentBlock; }
  options.loss_scaling = settings.loss_scaling;
  options.max_skips = settings.max_skips;
  if (gathers(strategy)) {
    options.prefetch = settings.prefetch;
    options.tuning.prefetch_backward = settings.prefetch_backward;
    options.reshard = settings.reshard;
    options.persist_elems = settings.persist_elems;
  }
  options.offload = settings.offload;
  options.offload_keep = settings.offload_keep;
  options.accumulate = settings.accumulate;
  options.accumulate_mode = settings.accumulate_mode;
  return options;
}

MeshShape mesh_of(const Settings& settings, Strategy strategy) {
  return settings.mesh.empty() ? tessera::mesh_of(strategy, settings.ranks, settings.shard_group)
                               : MeshShape{settings.mesh};
}

std::vector<Strategy> strategies_of(const Settings& settings) {
  return settings.strategies.empty() ? std::vector{settings.strategy} : settings.strategies;
}

void check_with_library(const Settings& settings, const std::vector<Strategy>& strategies,
                        const std::vector<int>& ranks) {
  validate(world_options(settings));
  const bool hybrid = std::ranges::find(strategies, Strategy::hybrid) != strategies.end();
  if (settings.has("--shard-group") && !hybrid) {
    validate({.strategy = strategies.front(), .shard_group = settings.shard_group}, ranks.front());
  }
  for (const Strategy strategy : strategies) {
    const ModelOptions options = model_options(settings, strategy);
    for (const int count : ranks) { validate(options, count); }
    validate(options, optimizer_of(settings), optimizer_options(settings));
    if (settings.graph) { validate_in_graph(options); }
  }
}

void check_gathering(const Settings& settings, const std::vector<Strategy>& strategies) {
  if (std::ranges::any_of(strategies, gathers)) { return; }
  for (const char* option : {"--prefetch", "--prefetch-backward", "--reshard", "--persist"}) {
    if (settings.changes(option)) { require_gathering(strategies.front(), field_of(option)); }
  }
}

}  // namespace tessera::tools
