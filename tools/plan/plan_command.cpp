#include "tools/plan/plan_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/pipeline/timeline.hpp"
#include "tools/common/json_text.hpp"
#include "tools/common/output_file.hpp"
#include "tools/common/table.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/budget.hpp"
#include "tools/plan/plan_document.hpp"
#include "tools/plan/plan_search.hpp"
#include "tools/plan/plan_time.hpp"
#include "tools/train/report.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

// Refuses options that a stack of units cannot respect, because it computes nothing.
void check_stack(const Settings& settings) {
  for (const char* option : {"--batch", "--seq"}) {
    if (settings.has(option) && settings.machine.empty()) {
      throw ConfigError(
          fmt::format("--params cannot be combined with {} without --time: it plans model states "
                      "and slots, and computes nothing; leave one of them out",
                      option));
    }
  }
  for (const char* option :
       {"--model", "--layers", "--hidden", "--heads", "--vocab", "--threads", "--norm-dtype",
        "--recompute", "--head-rows", "--dropout", "--sequence-parallel", "--tensor-slices"}) {
    if (settings.has(option)) {
      throw ConfigError(fmt::format(
          "--params cannot be combined with {}: it plans model states and slots, and computes "
          "nothing; leave one of them out",
          option));
    }
  }
  constexpr int units = 64;
  if (ranks_along(settings, "pipe") > units) {
    throw ConfigError(
        fmt::format("--params plans a stack of {} units, so pipe can be at most {}; give a --mesh "
                    "with a smaller pipe",
                    units, units));
  }
  if (settings.boundaries == nn::Boundaries::host) {
    throw ConfigError(
        "--params cannot be combined with --offload activations: it computes nothing, and has "
        "none; use --offload optimizer, or leave one of them out");
  }
}

// Without strategies, the command plans or searches all of them.
void check_strategies(const Settings& settings) {
  std::vector<Strategy> strategies = settings.strategies;
  if (!strategies.empty()) { check_gathering(settings, strategies); }
  strategies = strategies_on(settings, std::move(strategies));
  if (strategies.empty()) { strategies = {Strategy::zero3}; }  // it supports every option but one
  check_planned_groups(settings, strategies, {settings.ranks});
}

/// ConfigError if `output` is the profile that --time reads.
void refuse_profile(const Settings& settings, std::string_view option, const std::string& output) {
  std::error_code ignored;
  if (!std::filesystem::equivalent(settings.machine, output, ignored)) { return; }
  throw ConfigError(
      fmt::format("{}: {} is the file that --time reads; write to another file", option, output));
}

void check_plan(const Settings& settings) {
  if (settings.params) { check_stack(settings); }
  if (settings.has("--strategy") && settings.has("--strategies")) {
    throw ConfigError("--strategy and --strategies cannot be combined; give one of them");
  }
  if (!settings.params) { (void)settings.named_model(); }
  if (!settings.json.empty()) { require_writable("--json", settings.json); }
  if (!settings.report.empty()) { require_writable("--report", settings.report); }
  require_apart({{"--json", settings.json}, {"--report", settings.report}});
  refuse_profile(settings, "--json", settings.json);
  refuse_profile(settings, "--report", settings.report);
  check_planned(settings);
  check_optimizer(settings);
  check_checkpoint(settings);
  check_strategies(settings);
  check_time(settings);
}

void write_files(const Settings& settings, const Json& json) {
  if (!settings.json.empty()) {
    const std::string text = json_text(json, 2) + "\n";
    write_output(settings.json, text);
    fmt::print("plan in {}\n", settings.json);
  }
  write_report("plan", json, settings, {});
}

void plan_strategies(const Settings& settings) {
  std::vector<StrategyPlan> plans;
  for (const Strategy strategy : settings.strategies) {
    plans.push_back(plan_asked(settings, strategy));
  }
  fmt::print("{}\n{}", describe_plan(settings), plan_text(settings, plans));
  Json json = plan_json(settings, plans);
  plan_times(settings, settings.strategies, json);
  write_files(settings, json);
  const auto no_room = [&](const StrategyPlan& plan) {
    return settings.world.budget_bytes && !fits(plan, *settings.world.budget_bytes);
  };
  if (!std::ranges::all_of(plans, no_room)) { return; }
  const StrategyPlan& smallest = *std::ranges::min_element(
      plans, {}, [](const StrategyPlan& plan) { return plan.fullest().memory.peak_bytes; });
  require_budget(smallest, settings);
}

Json split_json(const SplitCandidate& candidate) {
  const Choice& choice = candidate.planned.choice;
  Json json = {{"strategy", to_string(choice.strategy)},
               {"mesh", mesh_words(choice.settings.sharded.mesh)},
               {"peak_bytes", candidate.planned.plan.fullest().memory.peak_bytes},
               {"command", command_line_of(choice)}};
  if (candidate.seconds > 0) { json["seconds_per_step"] = candidate.seconds; }
  return json;
}

Json search_json(const SearchResult& result) {
  if (!result.found) { return {{"found", false}, {"tried", result.tried}, {"command", nullptr}}; }
  Json json = {
      {"found", true}, {"tried", result.tried}, {"command", command_line_of(result.found->choice)}};
  for (const SplitCandidate& split : result.splits) { json["meshes"].push_back(split_json(split)); }
  return json;
}

/// The reasons for choosing a mesh; empty if none was chosen.
std::string reasons_of_mesh(const Settings& settings, const SearchResult& result) {
  if (result.splits.empty()) { return {}; }
  if (settings.machine.empty()) {
    return "(of meshes the one with the fewest parts: shard first, then tensor within the ranks of "
           "a machine,\nthen pipe; with --time FILE the fastest)\n";
  }
  Table table{{"meshes that fit", "strategy", "batch", "ms a step", "peak"}};
  for (const SplitCandidate& split : result.splits) {
    const Settings& chosen = split.planned.choice.settings;
    table.add({mesh_words(chosen.sharded.mesh) + describe_parallel(chosen),
               std::string{to_string(split.planned.choice.strategy)},
               fmt::format("{} x {}", chosen.batch, chosen.sharded.accumulate),
               fmt::format("{:.4g}", split.seconds * 1e3),
               format_bytes(split.planned.plan.fullest().memory.peak_bytes)});
  }
  return table.text() + "(the fastest of them is chosen)\n";
}

/// What a search added to the request, and its cost.
struct Added {
  std::string words;               ///< " --recompute gelu", or empty
  std::vector<std::string> costs;  ///< "computes GELU's output again"
};

std::string cost_of(const Settings& settings) {
  const nn::Recompute& recompute = settings.recompute;
  if (recompute.applies_to(0)) { return "runs every layer's forward again in backward"; }
  const bool swiglu = settings.named_model().config.mlp == nn::MLPKind::swiglu;
  const std::string activation = swiglu ? "SwiGLU" : "GELU";
  if (recompute.activation_of(0) && recompute.norms_of(0)) {
    return "computes " + activation + "'s and both norms' outputs again in backward";
  }
  return recompute.activation_of(0) ? "computes " + activation + "'s output again in backward"
                                    : "computes both norms' outputs again in backward";
}

Added added_by(const Settings& asked, const Planned& shown) {
  const Settings& chosen = shown.choice.settings;
  Added added;
  if (chosen.recompute.describe() != asked.recompute.describe()) {
    added.words += " --recompute " + chosen.recompute.describe();
    added.costs.push_back(cost_of(chosen));
  }
  if (chosen.head_rows != asked.head_rows) {
    added.words += fmt::format(" --head-rows {}", chosen.head_rows);
    added.costs.emplace_back(asked.world.device == DeviceKind::cpu
                                 ? "adds the gradient of the token table chunk by chunk"
                                 : "lends attention less of the logits' memory");
  }
  if (chosen.sharded.mesh != asked.sharded.mesh) {
    added.words += " --mesh " + mesh_words(chosen.sharded.mesh);
    if (const int tensor = ranks_along(chosen, "tensor"); tensor > 1) {
      added.costs.push_back(fmt::format("adds up every layer's output over {} ranks", tensor));
    }
    if (ranks_along(chosen, "pipe") > 1) {
      added.costs.push_back(fmt::format("leaves ranks idle for {:.1f} % of a step",
                                        100 * pipeline::play(schedule_of(chosen)).bubble()));
    }
  }
  if (chosen.sharded.offload != asked.sharded.offload) {
    const bool same_memory = asked.world.device == DeviceKind::cpu;
    added.words += fmt::format(" --offload {}", to_string(chosen.sharded.offload));
    added.costs.push_back(fmt::format("takes up to {} of host memory a rank{}",
                                      format_bytes(shown.plan.fullest().host_peak_bytes),
                                      same_memory ? " (on the cpu: of the same machine)" : ""));
  }
  return added;
}

/// Introduces the command that follows.
std::string finding(const Settings& settings, const Planned& found) {
  const std::string budget = format_bytes(*settings.world.budget_bytes);
  const Added added = added_by(settings, found);
  if (added.words.empty()) { return fmt::format("the cheapest that fits {}", budget); }
  return fmt::format("nothing fits {} without{}, which {};\nthe cheapest that fits with it", budget,
                     added.words, fmt::join(added.costs, " and "));
}

void plan_search(const Settings& settings) {
  const SearchResult result = search(settings);
  // Any other failure to plan was thrown as an error.
  const Planned& shown = result.found ? *result.found : result.nearest.value();
  fmt::print("{}\n{}\n", describe_plan(shown.choice.settings),
             plan_text(shown.choice.settings, {shown.plan}));
  Json json = plan_json(shown.choice.settings, {shown.plan});
  plan_times(shown.choice.settings, {shown.plan.strategy}, json);
  json["search"] = search_json(result);
  if (result.found) {
    fmt::print("{}, after {} that do not:\n\n  {}\n{}", finding(settings, shown),
               result.tried - std::max<std::size_t>(result.splits.size(), 1),
               command_line_of(shown.choice), reasons_of_mesh(settings, result));
    return write_files(settings, json);
  }
  write_files(settings, json);
  const RankPlan& rank = shown.plan.fullest();
  const std::string added = added_by(settings, shown).words;
  throw OutOfMemory(fmt::format(
      "nothing fits --budget {}: of {} choices{} {}{} needs the least, and its rank {} would hold "
      "{}\n"
      "use {}",
      format_bytes(*settings.world.budget_bytes), result.tried,
      result.skipped_meshes ? " that do not split the model (whose states alone exceed the budget)"
                            : "",
      to_string(shown.plan.strategy), added.empty() ? "" : " with" + added, rank.rank,
      describe(rank.memory.at_peak),
      advice(shown.plan, shown.choice.settings, Tried::all_strategies)));
}

}  // namespace

void plan_command(const Settings& asked) {
  Settings settings = asked;
  check_plan(settings);
  if (settings.strategies.empty() && settings.world.budget_bytes) { return plan_search(settings); }
  if (settings.strategies.empty()) {
    settings.strategies = strategies_on(
        settings, {Strategy::dp, Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3});
  }
  plan_strategies(settings);
}

}  // namespace tessera::tools
