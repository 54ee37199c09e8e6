#include "tools/plan/plan_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/resharding.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/mesh_search.hpp"
#include "tools/plan/plan_time.hpp"

namespace tessera::tools {
namespace {

constexpr std::int64_t kMostOfEither = 1'000'000;  // the limits of --batch and --accumulate
constexpr std::size_t kMostTimed = 6;              // meshes to time: each takes seconds

bool in_stages(const Settings& settings) {
  return ranks_along(settings, "pipe") > 1;
}

/// Reductions of each gradient in a step.
std::int64_t reductions(Strategy strategy, const Settings& settings) {
  if (in_stages(settings)) { return 1; }
  const bool every = resolve(settings.sharded.accumulate_mode, strategy) == AccumulateMode::every;
  return every ? settings.sharded.accumulate : 1;
}

/// How often a step gathers each parameter among the ranks that share one copy of the states.
std::int64_t gathers_of(Strategy strategy, const Settings& settings) {
  if (!gathers(strategy)) { return 1; }  // after the update
  // Ignores the savings of --persist: it applies to units too small to decide.
  const std::int64_t in_a_micro_batch = settings.sharded.reshard == Reshard::after_backward ? 1 : 2;
  return in_a_micro_batch * settings.sharded.accumulate;
}

void count_traffic(Choice& choice) {
  const Settings& settings = choice.settings;
  const MeshShape mesh = mesh_of(settings, choice.strategy);
  const std::int64_t reduced = reductions(choice.strategy, settings);
  const std::int64_t within =
      mesh.size("shard") == 1 ? 0 : gathers_of(choice.strategy, settings) + reduced;
  if (mesh.size("replicate") == 1) {
    choice.traffic = within;
    return;
  }
  choice.traffic = 2 * reduced;  // an all-reduce is a reduce-scatter and an all-gather
  choice.within_group = within;
}

/// How many more micro-batches a pipeline needs to be idle for less than a fifth of a step: the
/// total needed is four per place along it, divided by the stages of a rank.
std::int64_t micro_batches_lacking(const Settings& settings) {
  const std::int64_t places = ranks_along(settings, "pipe");
  if (places == 1) { return 0; }
  const std::int64_t chunks = stages_of(settings) / places;
  return std::max<std::int64_t>(0, ceil_div(4 * places, chunks) - settings.sharded.accumulate);
}

/// `settings` with the interleaved schedule, with the fewest stages per rank that shorten the
/// bubbles enough, at most four; empty if they are short enough already.
std::optional<Settings> interleaved(Settings settings) {
  const int places = ranks_along(settings, "pipe");
  const bool can_be = in_stages(settings) && !settings.params && !settings.has("--schedule") &&
                      settings.sharded.accumulate % places == 0;
  if (!can_be || micro_batches_lacking(settings) == 0) { return {}; }
  std::optional<Settings> found;
  settings.pipe_schedule = PipeSchedule::interleaved;
  for (const int chunks : {2, 4}) {
    settings.chunks = chunks;
    if (stages_of(settings) > settings.named_model().config.layers) { break; }
    found = settings;
    if (micro_batches_lacking(settings) == 0) { break; }
  }
  return found;
}

/// The ways to cut a rank's samples of a step into micro-batches.
std::vector<Settings> cuts(const Settings& settings) {
  if (settings.params) { return {settings}; }
  const std::int64_t samples = settings.batch * settings.sharded.accumulate;
  std::vector<Settings> all;
  for (std::int64_t batch = 1; batch <= std::min(samples, kMostOfEither); ++batch) {
    if (samples % batch != 0 || samples / batch > kMostOfEither) { continue; }
    const bool typed = settings.pipe_schedule == PipeSchedule::interleaved;
    if (typed && samples / batch % ranks_along(settings, "pipe") != 0) { continue; }
    all.push_back(settings);
    all.back().batch = batch;
    all.back().sharded.accumulate = static_cast<int>(samples / batch);
    if (auto more_stages = interleaved(all.back())) { all.push_back(*std::move(more_stages)); }
  }
  return all;
}

std::vector<AccumulateMode> modes(const Settings& settings, Strategy strategy) {
  const AccumulateMode best = resolve(AccumulateMode::automatic, strategy);
  if (settings.has("--accumulate-mode") || settings.sharded.accumulate == 1 ||
      in_stages(settings)) {
    return {settings.sharded.accumulate_mode};
  }
  // If whole gradients are kept anyway, reducing more often saves nothing.
  if (best == AccumulateMode::deferred) { return {AccumulateMode::automatic}; }
  return {AccumulateMode::automatic, AccumulateMode::deferred};
}

std::vector<int> prefetches(const Settings& settings, Strategy strategy) {
  if (settings.has("--prefetch") || !gathers(strategy)) { return {settings.sharded.prefetch}; }
  return {1, 0};
}

/// Caches activation_bytes: many choices have the same.
class KnownActivations {
 public:
  std::size_t of(const Settings& settings) {
    const Key key{settings.batch, settings.sharded.accumulate, settings.head_rows,
                  settings.recompute.describe(),
                  mesh_words(settings.sharded.mesh) + describe_parallel(settings)};
    const auto known = bytes_.find(key);
    if (known != bytes_.end()) { return known->second; }
    return bytes_[key] = activation_bytes(settings);
  }

 private:
  using Key = std::tuple<std::int64_t, int, std::int64_t, std::string, std::string>;
  std::map<Key, std::size_t> bytes_;
};

/// Choices that were planned and do not fit.
struct Misses {
  std::vector<Choice> choices;
  KnownActivations activations;
  std::exception_ptr impossible = nullptr;  // why the first choice that cannot be, cannot be
};

/// The plan of `choice` if it fits. Tries what shows a misfit without a plan first.
std::optional<StrategyPlan> plan_within(std::size_t limit, const Choice& choice,
                                        KnownActivations& activations) {
  if (activations.of(choice.settings) > limit) { return {}; }
  return plan_asked_within(limit, choice.settings, choice.strategy);
}

/// The outcome of a choice.
struct Trial {
  bool possible = true;
  std::optional<StrategyPlan> plan;  ///< if it fits
};

/// The search invents micro-batches, meshes and offloading that may be impossible together with
/// what was typed: those are skipped.
Trial try_choice(std::size_t limit, const Choice& choice, Misses& misses) {
  try {
    return {true, plan_within(limit, choice, misses.activations)};
  } catch (const ConfigError&) {
    if (!misses.impossible) { misses.impossible = std::current_exception(); }
    return {false, {}};
  }
}

constexpr std::int64_t kChunks = 8;
constexpr std::int64_t kLeastChunkRows = 64;

/// Rows of logits per chunk; 0 if one chunk would hold them all.
std::int64_t chunk_rows(const Settings& settings) {
  const std::int64_t rows = settings.batch * settings.named_model().config.seq;
  const std::int64_t chunk = round_up(ceil_div(rows, kChunks), kLeastChunkRows);
  return chunk < rows ? chunk : 0;
}

/// The recompute options to try, the cheapest first.
std::vector<nn::Recompute> recomputes(const Settings& settings) {
  if (settings.params || settings.has("--recompute")) { return {settings.recompute}; }
  using nn::Recompute;
  const nn::DecoderConfig config = settings.named_model().config;
  const Recompute norms = Recompute::norms(config);
  const Recompute activation = Recompute::activation(config);
  return {Recompute::none(), norms, activation, activation | norms, Recompute::block()};
}

std::vector<HeadRows> heads(const Settings& settings) {
  if (settings.params || settings.has("--head-rows")) { return {HeadRows::as_asked}; }
  return {HeadRows::as_asked, HeadRows::in_chunks};
}

/// Tries choices until one fits; adds the others to `misses`.
void try_choices(const std::vector<Choice>& all, const Settings& settings, SearchResult& result,
                 Misses& misses) {
  for (const Choice& choice : all) {
    Trial trial = try_choice(*settings.world.budget_bytes, choice, misses);
    if (!trial.possible) { continue; }
    ++result.tried;
    if (trial.plan) {
      result.found = Planned{choice, std::move(*trial.plan)};
      return;
    }
    misses.choices.push_back(choice);
  }
}

void try_with_less_kept(Settings settings, SearchResult& result, Misses& misses) {
  for (const nn::Recompute& recompute : recomputes(settings)) {
    settings.recompute = recompute;
    for (const HeadRows head : heads(settings)) {
      try_choices(choices(settings, head), settings, result, misses);
      if (result.found) { return; }
    }
  }
}

/// Whether model states alone, all of them sharded, leave room in the budget: splitting the model
/// does not change a rank's share of them.
bool states_fit(const Settings& settings, Misses& misses) {
  Choice least{settings, Strategy::zero3};
  if (!settings.params) { least.settings.batch = 1; }
  least.settings.sharded.accumulate = 1;
  const Trial trial = try_choice(std::numeric_limits<std::size_t>::max(), least, misses);
  if (!trial.plan) { return true; }  // the meshes tell
  const ModelStateBytes state = trial.plan->fullest().state;
  return state.parameters + state.gradients + state.optimizer <= *settings.world.budget_bytes;
}

/// Tries to split the model. With a profile of the machine it times the first few meshes that fit
/// and takes the fastest; without one it takes the first that fits.
void try_meshes(const Settings& settings, SearchResult& result, Misses& misses) {
  std::optional<MachineProfile> profile = profile_of(settings);
  const int machine = profile && !profile->levels.empty() && profile->levels.front().ranks > 0
                          ? profile->levels.front().ranks
                          : kRanksOfMachine;
  const std::vector<Settings> all = split_settings(settings, machine);
  if (all.empty()) { return; }
  result.skipped_meshes = !states_fit(settings, misses);
  if (result.skipped_meshes) { return; }
  for (const Settings& split : all) {
    SearchResult one;
    try_with_less_kept(split, one, misses);
    result.tried += one.tried;
    if (!one.found) { continue; }
    SplitCandidate& candidate = result.splits.emplace_back(SplitCandidate{*one.found, {}});
    if (!profile) { break; }
    const Choice& choice = candidate.planned.choice;
    candidate.seconds = plan_time(choice.settings, choice.strategy, *profile).seconds;
    if (result.splits.size() == kMostTimed) { break; }
  }
  if (result.splits.empty()) { return; }
  result.found = std::ranges::min_element(result.splits, {}, &SplitCandidate::seconds)->planned;
}

/// The choice of `misses` that needs the least memory, the first of equals. It starts with the last
/// choices, which need less than most: earlier ones soon turn out to need more. Throws why they are
/// impossible, or too large for any machine, if all are.
Planned nearest_of(Misses& misses) {
  std::optional<Planned> nearest;
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  for (auto choice = misses.choices.rbegin(); choice != misses.choices.rend(); ++choice) {
    Trial trial = try_choice(limit, *choice, misses);
    if (!trial.plan) { continue; }
    limit = trial.plan->fullest().memory.peak_bytes;
    nearest = Planned{*choice, std::move(*trial.plan)};
  }
  if (nearest) { return *nearest; }
  if (misses.choices.empty()) { std::rethrow_exception(misses.impossible); }
  const Choice& first = misses.choices.front();
  return {first, plan_asked(first.settings, first.strategy)};
}

std::string model_words(const Settings& settings) {
  if (settings.params) { return fmt::format(" --params {}", *settings.params); }
  const NamedModel model = settings.named_model();
  if (model.name != "custom") {
    const std::string seq = settings.seq ? fmt::format(" --seq {}", *settings.seq) : std::string{};
    return " --model " + model.name + seq;
  }
  const nn::DecoderConfig& config = model.config;
  return fmt::format(" --layers {} --hidden {} --heads {} --vocab {} --seq {}", config.layers,
                     config.hidden, config.heads, config.vocab, config.seq);
}

std::string dtype_words(const Settings& settings) {
  std::string words;
  const auto add = [&](std::string_view option, DType dtype) {
    if (dtype != DType::fp32) { words += fmt::format(" {} {}", option, to_string(dtype)); }
  };
  add("--precision", settings.sharded.compute);
  add("--gradient-dtype", settings.sharded.gradient);
  add("--reduce-dtype", settings.sharded.reduce);
  return words;
}

std::string step_words(const Settings& settings, Strategy strategy) {
  std::string words;
  if (!settings.params) { words += fmt::format(" --batch {}", settings.batch); }
  words += fmt::format(" --accumulate {}", settings.sharded.accumulate);
  if (settings.sharded.accumulate_mode != AccumulateMode::automatic) {
    words += fmt::format(" --accumulate-mode {}", to_string(settings.sharded.accumulate_mode));
  }
  if (settings.sharded.shard_group > 0) {
    words += fmt::format(" --shard-group {}", settings.sharded.shard_group);
  }
  words += parallel_words(settings);
  if (gathers(strategy)) { words += resharding_words(settings); }
  if (settings.world.threads > 1) { words += fmt::format(" --threads {}", settings.world.threads); }
  if (settings.norm_dtype) {
    words += fmt::format(" --norm-dtype {}", to_string(*settings.norm_dtype));
  }
  const std::string recompute = settings.recompute.describe();
  if (recompute != "none") { words += " --recompute " + recompute; }
  if (settings.head_rows > 0) { words += fmt::format(" --head-rows {}", settings.head_rows); }
  if (settings.world.nondeterministic_attention) { words += " --nondeterministic-attention"; }
  words += offload_words(settings);
  if (settings.dropout > 0) { words += fmt::format(" --dropout {}", settings.dropout); }
  return words + dtype_words(settings) + optimizer_words(settings) + checkpoint_words(settings);
}

/// A size as a user would type it: "24GiB", or bytes.
std::string size_words(std::size_t bytes) {
  std::string_view unit;
  for (const std::string_view next : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (bytes % 1024 != 0) { break; }
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{}{}", bytes, unit);
}

}  // namespace

std::vector<Choice> choices(const Settings& settings, HeadRows head) {
  const std::vector<Strategy> strategies =
      strategies_on(settings, {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3});
  std::vector<Choice> all;
  for (Settings& cut : cuts(settings)) {
    if (head == HeadRows::in_chunks) {
      cut.head_rows = chunk_rows(cut);
      if (cut.head_rows == 0) { continue; }
    }
    for (const Strategy strategy : strategies) {
      for (const AccumulateMode mode : modes(cut, strategy)) {
        for (const int prefetch : prefetches(cut, strategy)) {
          Choice& choice = all.emplace_back(Choice{cut, strategy});
          choice.settings.sharded.accumulate_mode = mode;
          choice.settings.sharded.prefetch = prefetch;
          if (strategy != Strategy::hybrid) { choice.settings.sharded.shard_group = 0; }
          count_traffic(choice);
        }
      }
    }
  }
  const auto cost = [](const Choice& choice) {
    return std::tuple{micro_batches_lacking(choice.settings),
                      stages_of(choice.settings),
                      choice.traffic,
                      choice.within_group,
                      -choice.settings.batch,
                      -choice.settings.sharded.prefetch,
                      choice.strategy};
  };
  std::ranges::stable_sort(all, {}, cost);
  return all;
}

SearchResult search(const Settings& settings) {
  SearchResult result;
  Misses misses;
  try_with_less_kept(settings, result, misses);
  if (!result.found) { try_meshes(settings, result, misses); }
  for (const Offload what : {Offload::state, Offload::optimizer}) {
    // On a CPU both are in the same memory, and states that the host updates are copied less.
    if (what == Offload::state && settings.world.device == DeviceKind::cpu) { continue; }
    if (result.found || settings.has("--offload") || !can_offload(settings, what)) { continue; }
    Settings offloaded = settings;
    offloaded.sharded.offload = what;
    try_with_less_kept(offloaded, result, misses);
  }
  if (!result.found) { result.nearest = nearest_of(misses); }
  return result;
}

std::string command_line_of(const Choice& choice) {
  const Settings& settings = choice.settings;
  const CommKind comm = planned_comm(settings, settings.ranks);
  const bool local = comm == CommKind::local;
  const bool cuda = settings.world.device == DeviceKind::cuda;
  const std::string rest =
      fmt::format("{}{} --strategy {}{} --budget {}", cuda ? " --device cuda" : "",
                  model_words(settings), to_string(choice.strategy),
                  step_words(settings, choice.strategy), size_words(*settings.world.budget_bytes));
  const bool trains = !settings.params;
  if (!trains) {
    return fmt::format("tessera plan --ranks {} --comm {}{}", settings.ranks, to_string(comm),
                       rest);
  }
  return local ? fmt::format("tessera train --data PATH --ranks {}{}", settings.ranks, rest)
               : fmt::format("mpirun -n {} tessera train --data PATH{}", settings.ranks, rest);
}

}  // namespace tessera::tools
