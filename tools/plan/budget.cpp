#include "tools/plan/budget.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/resharding.hpp"

namespace tessera::tools {
namespace {

struct Share {
  std::size_t bytes;
  std::string_view remedy;
};

/// A model for inference has no gradients, and keeps nothing that could be recomputed.
std::string activations_remedy(const CategoryBytes& bytes, const Settings& settings) {
  const bool trains = bytes[Category::gradients] > 0;
  std::string remedies;
  if (trains && settings.recompute.describe() == "none") {
    const nn::DecoderConfig config =
        settings.params ? nn::DecoderConfig{} : settings.named_model().config;
    const nn::Recompute some = nn::Recompute::activation(config) | nn::Recompute::norms(config);
    remedies += "--recompute " + some.describe() + " or block, ";
  } else if (trains && settings.recompute.describe() != "block") {
    remedies += "--recompute block, ";
  }
  if (trains && settings.head_rows == 0) { remedies += "some --head-rows at a time, "; }
  remedies += settings.batch > 1 ? "a smaller --batch with more --accumulate" : "a shorter --seq";
  return remedies + " or a smaller model";
}

/// Whether there are several copies of the model states, each of them fully sharded.
bool shards_in_groups(const Settings& settings, Strategy strategy) {
  return gathers(strategy) && mesh_of(settings, strategy).size("replicate") > 1;
}

std::string state_remedy(const CategoryBytes& bytes, const Settings& settings, Strategy strategy,
                         Tried tried) {
  const bool one = tried == Tried::one_strategy;
  const bool in_groups = shards_in_groups(settings, strategy);
  std::vector<std::string_view> remedies;
  if (one && in_groups && settings.sharded.mesh.empty()) {
    remedies = {"a larger --shard-group", "zero3"};
  }
  if (one && in_groups && !settings.sharded.mesh.empty()) {
    remedies = {"a --mesh with more ranks along shard"};
  }
  if (one && !gathers(strategy)) { remedies = {"a strategy that shards more"}; }
  const bool trains = bytes[Category::gradients] > 0;
  if (one && trains && can_offload(settings, Offload::optimizer)) {
    remedies.push_back("--offload optimizer");
  } else if (one && trains && can_offload(settings, Offload::state)) {
    remedies.push_back("--offload state");
  }
  if (!one || !in_groups) { remedies.push_back("more ranks"); }
  return fmt::format("{} or a smaller model", fmt::join(remedies, ", "));
}

std::string_view gather_remedy(const Settings& settings, Strategy strategy) {
  if (!gathers(strategy)) { return "smaller units (more and narrower layers)"; }
  if (settings.sharded.reshard == Reshard::after_backward) { return "--reshard after-forward"; }
  if (settings.sharded.persist_elems > 0) { return "a smaller --persist"; }
  return settings.sharded.prefetch > 0
             ? "a smaller --prefetch, or smaller units (more and narrower layers)"
             : "smaller units (more and narrower layers)";
}

}  // namespace

bool fits(const StrategyPlan& plan, std::size_t budget_bytes) {
  return plan.fullest().memory.peak_bytes <= budget_bytes;
}

std::string advice(const StrategyPlan& plan, const Settings& settings, Tried tried) {
  const RankPlan& rank = plan.fullest();
  const CategoryBytes& bytes = rank.memory.at_peak;
  const std::string state = state_remedy(bytes, settings, plan.strategy, tried);
  const std::string activations = activations_remedy(bytes, settings);
  const Share shares[] = {
      {bytes[Category::parameters] + bytes[Category::gradients] + bytes[Category::optimizer],
       state},
      {bytes[Category::activations] + bytes[Category::workspace], activations},
      {bytes[Category::gather] + bytes[Category::reduce], gather_remedy(settings, plan.strategy)},
      {bytes[Category::communicator], settings.ranks <= kMostThreadRanks
                                          ? "ranks that are threads (--comm local)"
                                          : "fewer ranks, which need less staging memory"},
  };
  return std::string{std::ranges::max_element(shares, {}, &Share::bytes)->remedy};
}

void require_budget(const StrategyPlan& plan, const Settings& settings) {
  if (!settings.world.budget_bytes || fits(plan, *settings.world.budget_bytes)) { return; }
  const RankPlan& rank = plan.fullest();
  throw OutOfMemory(fmt::format(
      "--budget {}: under {} rank {} would hold {}\nuse {}; tessera plan --budget finds what fits",
      format_bytes(*settings.world.budget_bytes), to_string(plan.strategy), rank.rank,
      describe(rank.memory.at_peak), advice(plan, settings, Tried::one_strategy)));
}

}  // namespace tessera::tools
