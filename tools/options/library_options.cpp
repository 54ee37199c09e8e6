#include "tools/options/library_options.hpp"

#include <algorithm>

#include "tools/options/optimizer.hpp"
#include "tools/options/option_words.hpp"
#include "tools/options/resharding.hpp"

namespace tessera::tools {

WorldOptions world_options(const Settings& settings) {
  WorldOptions options = settings.world;
  options.trace = settings.records();
  return options;
}

ModelOptions model_options(const Settings& settings, Strategy strategy) {
  ModelOptions options = settings.sharded;
  options.strategy = strategy;
  if (strategy != Strategy::hybrid) { options.shard_group = 0; }
  if (settings.update.moments == MomentFormat::int8) { options.align_elems = kMomentBlock; }
  if (!gathers(strategy)) {
    const ModelOptions defaults;
    options.prefetch = defaults.prefetch;
    options.tuning.prefetch_backward.reset();
    options.reshard = defaults.reshard;
    options.persist_elems = 0;
  }
  return options;
}

MeshShape mesh_of(const Settings& settings, Strategy strategy) {
  return settings.sharded.mesh.empty()
             ? tessera::mesh_of(strategy, settings.ranks, settings.sharded.shard_group)
             : MeshShape{settings.sharded.mesh};
}

std::vector<Strategy> strategies_of(const Settings& settings) {
  return settings.strategies.empty() ? std::vector{settings.sharded.strategy} : settings.strategies;
}

void check_with_library(const Settings& settings, const std::vector<Strategy>& strategies,
                        const std::vector<int>& ranks) {
  validate(world_options(settings));
  const bool hybrid = std::ranges::find(strategies, Strategy::hybrid) != strategies.end();
  if (settings.has("--shard-group") && !hybrid) {
    validate({.strategy = strategies.front(), .shard_group = settings.sharded.shard_group},
             ranks.front());
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
