#include "tools/plan/plan_time.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "tessera/base/error.hpp"
#include "tools/common/input_file.hpp"
#include "tools/common/table.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/ranks.hpp"
#include "tools/plan/planner.hpp"
#include "tools/train/rank_gpt.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

// The first step gathers without prefetch; the second and all later ones are alike.
constexpr int kTimedSteps = 4;
constexpr int kMostTimedMicroBatches = 256;

std::int64_t tokens_of_rank(const Settings& settings) {
  const std::int64_t seq = settings.params ? *settings.seq : settings.named_model().config.seq;
  return settings.batch * settings.sharded.accumulate * seq;
}

void log_step(World& world, const std::function<void()>& step) {
  for (int i = 0; i < kTimedSteps; ++i) {
    step();
    world.work_log()->end_step();
  }
}

void run_gpt(World& world, const Settings& settings, Strategy strategy) {
  const NamedModel model = settings.named_model();
  RankGpt gpt{world, settings, model.config, strategy};
  gpt.materialize(gpt.initializer());
  gpt.optimize();
  gpt.reserve();
  const std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(settings.batch * model.config.seq));
  log_step(world, [&] {
    gpt.run([&](int /*micro_batch*/) { return nn::MicroBatch{tokens, tokens}; });
    gpt.update(settings.lr);
  });
}

/// The products of `times` passes over a unit's weights: two FLOPs per weight and token.
trace::KernelWork unit_work(const Settings& settings, std::int64_t elems, int times) {
  const auto tokens = static_cast<double>(settings.batch * *settings.seq);
  const auto weights = static_cast<double>(elems);
  return {.name = "unit",
          .dtype = settings.sharded.compute,
          .flops = 2 * times * weights * tokens,
          .bytes = times * weights * static_cast<double>(size_of(settings.sharded.compute)),
          .sizes = {settings.batch * *settings.seq, elems, 0}};
}

void run_stack(World& world, const Settings& settings, Strategy strategy) {
  ShardedModel model{world, model_options(settings, strategy)};
  const std::vector<Unit> units = make_stack(model, settings, *settings.params, world.rank());
  const std::int64_t elems = *settings.params / static_cast<std::int64_t>(units.size());
  const auto pass = [&](const auto& open, auto first, const auto& last, int times) {
    for (; first != last; ++first) {
      const auto scope = open(*first);
      world.compute(unit_work(settings, elems, times), [] {});
    }
  };
  log_step(world, [&] {
    for (int micro = 0; micro < settings.sharded.accumulate; ++micro) {
      pass([&](Unit unit) { return model.forward(unit); }, units.begin(), units.end(), 1);
      pass([&](Unit unit) { return model.backward(unit); }, units.rbegin(), units.rend(), 2);
    }
    model.step();
  });
}

trace::WorkLog log_of(const Settings& settings, Strategy strategy, int rank) {
  WorldOptions options = world_options(settings);
  options.trace = false;
  options.log_work = true;
  options.budget_bytes.reset();
  trace::WorkLog log;
  simulate_rank(
      {.rank = rank,
       .ranks = settings.ranks,
       .backend = {.device = settings.world.device,
                   .comm = planned_comm(settings, settings.ranks)}},
      [&](World& world) {
        settings.params ? run_stack(world, settings, strategy) : run_gpt(world, settings, strategy);
        log = std::move(*world.work_log());
      },
      options);
  return log;
}

Json json_of(const TimeShares& shares) {
  return {{"compute_seconds", shares.computing},
          {"memory_seconds", shares.memory},
          {"exposed_bandwidth_seconds", shares.bandwidth},
          {"exposed_latency_seconds", shares.latency},
          {"waiting_seconds", shares.waiting}};
}

Json json_of(const StepTime& time) {
  Json json = json_of(time.shares);
  json["exposed_seconds"] = time.shares.exposed();
  json["bound"] = bound_of(time.shares);
  json["flops"] = time.flops;
  json["flops_per_second"] = time.flops / time.seconds;
  Json phases = Json::array();
  for (const PhaseShares& phase : time.phases) {
    Json one = {{"phase", phase.phase}, {"seconds", phase.shares.total()}};
    one.update(json_of(phase.shares));
    phases.push_back(std::move(one));
  }
  json["phases"] = phases;
  return json;
}

std::string short_milliseconds(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.2f}", seconds * 1e3)
                       : fmt::format("{:.0f}", seconds * 1e3);
}

void add_row(Table& table, Strategy strategy, const StepTime& time, double tokens) {
  const auto part = [&](double seconds) {
    return fmt::format("{:.1f} %", 100 * seconds / time.seconds);
  };
  table.add({std::string{to_string(strategy)}, short_milliseconds(time.seconds),
             fmt::format("{:.0f}", tokens / time.seconds),
             fmt::format("{:.3g}", time.flops / time.seconds * 1e-12),
             part(time.shares.computing + time.shares.memory), part(time.shares.bandwidth),
             part(time.shares.latency), part(time.shares.waiting),
             std::string{bound_of(time.shares)}});
}

// Reports errors of step_time before the plan is shown rather than after.
void check_reach(const Settings& settings, const MachineProfile& profile) {
  if (profile.levels.empty() && settings.ranks > 1) {
    throw ConfigError(fmt::format(
        "--time {}: this profile has no links between ranks; measure them "
        "(scripts/gpu_check.sh multi, on a machine of 2 and more GPUs), or plan --ranks 1",
        settings.machine));
  }
  const LinkLevel top = profile.levels.empty() ? LinkLevel{} : profile.levels.back();
  if (top.ranks > 0 && settings.ranks > top.ranks) {
    throw ConfigError(fmt::format(
        "--time {}: this profile has no link beyond the {} ranks of its last level, {}; add a "
        "level, or plan at most {} ranks",
        settings.machine, top.ranks, top.name, top.ranks));
  }
  for (const DType dtype :
       {settings.sharded.compute, settings.norm_dtype.value_or(settings.sharded.compute),
        settings.sharded.gradient, DType::fp32}) {
    // Without matrix units only multiplications count.
    const bool multiplies =
        profile.vector_flops_per_second == 0 || dtype == settings.sharded.compute;
    if (!multiplies || profile.flops_per_second.contains(dtype)) { continue; }
    throw ConfigError(fmt::format("--time {}: this profile has no flops_per_second of {}; add it",
                                  settings.machine, to_string(dtype)));
  }
}

}  // namespace

std::optional<MachineProfile> profile_of(const Settings& settings) {
  if (settings.machine.empty()) { return {}; }
  const std::string text = read_input("--time", settings.machine);
  try {
    return parse_machine_profile(text);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--time {}: {}", settings.machine, error.what()));
  }
}

void check_time(const Settings& settings) {
  const std::optional<MachineProfile> read = profile_of(settings);
  if (!read) { return; }
  const MachineProfile& profile = *read;
  const bool cuda = settings.world.device == DeviceKind::cuda;
  if (cuda == (profile.cores > 0)) {
    throw ConfigError(fmt::format(
        "--time {}: this profile is of {}, and the plan is for {}; use another, or --for {}",
        settings.machine, cuda ? "ranks that share cores" : "ranks with a device each",
        to_string(settings.world.device), cuda ? "cpu" : "cuda"));
  }
  if (profile.way == CollectiveWay::direct &&
      planned_comm(settings, settings.ranks) != CommKind::local) {
    throw ConfigError(
        fmt::format("--time {}: this profile is of ranks that read each other's memory, and {} "
                    "ranks through {} "
                    "do not; plan at most {} ranks, with --comm local",
                    settings.machine, settings.ranks,
                    to_string(planned_comm(settings, settings.ranks)), kMostThreadRanks));
  }
  if (profile.way == CollectiveWay::ring && settings.comm == CommChoice::local &&
      settings.ranks > 1) {
    throw ConfigError(
        fmt::format("--time {}: this profile is of ranks that pass data round in rings, and ranks "
                    "through local read each other's memory; leave --comm out",
                    settings.machine));
  }
  check_reach(settings, profile);
  if (settings.world.threads > 1) {
    throw ConfigError("--time plans ranks with one thread each; leave --threads out");
  }
  if (settings.sharded.offload == Offload::optimizer) {
    throw ConfigError(
        "--time cannot plan an update on the host; leave it out, or use --offload none or state");
  }
  if (settings.params && !settings.seq) {
    throw ConfigError(
        "--time with --params needs --seq (and --batch): 6 FLOPs for each parameter and token are "
        "the work of a step");
  }
  if (settings.params &&
      (ranks_along(settings, "pipe") > 1 || ranks_along(settings, "tensor") > 1)) {
    throw ConfigError(
        "--time with --params has no layers for pipe and tensor to split; give the sizes of a "
        "model (--layers, --hidden, --heads, --vocab, --seq)");
  }
  if (settings.sharded.accumulate > kMostTimedMicroBatches) {
    throw ConfigError(fmt::format("--time takes steps of at most {} micro-batches; --accumulate {}",
                                  kMostTimedMicroBatches, settings.sharded.accumulate));
  }
}

namespace {

/// Ranks that enqueue the same work.
struct TimedRank {
  int rank = 0;
  int count = 1;
};

/// Under dp rank 0 does more than the others, and along pipe each place does different work. Along
/// tensor all wait for the rank with the largest part, the last one (docs/plan-time-split.md).
/// Otherwise all ranks do the same amount.
std::vector<TimedRank> timed_ranks(const Settings& settings, Strategy strategy) {
  if (strategy == Strategy::dp && settings.ranks > 1) { return {{0, 1}, {1, settings.ranks - 1}}; }
  if (settings.sharded.mesh.empty()) { return {{0, settings.ranks}}; }
  const MeshShape mesh{settings.sharded.mesh};
  std::vector<TimedRank> ranks(static_cast<std::size_t>(mesh.size("pipe")));
  for (int rank = 0; rank < settings.ranks; ++rank) {
    if (mesh.data_index(rank) > 0 || mesh.index("tensor", rank) + 1 < mesh.size("tensor")) {
      continue;
    }
    ranks[static_cast<std::size_t>(mesh.index("pipe", rank))] = {
        rank, settings.ranks / mesh.size("pipe")};
  }
  return ranks;
}

}  // namespace

StepTime plan_time(const Settings& settings, Strategy strategy, const MachineProfile& profile) {
  const std::vector<TimedRank> ranks = timed_ranks(settings, strategy);
  std::vector<trace::WorkLog> logs;
  for (const TimedRank& one : ranks) { logs.push_back(log_of(settings, strategy, one.rank)); }
  std::vector<RankWork> work;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    work.push_back({&logs[i], ranks[i].count, ranks[i].rank});
  }
  return step_time(work, profile);
}

namespace {

/// The time of the first rank, and for each place along pipe if there are several.
Json time_json(const Settings& settings, const StepTime& time) {
  Json json = json_of(time);
  if (ranks_along(settings, "pipe") == 1) { return json; }
  double idle = 0;
  for (const RankTime& rank : time.ranks) {
    Json stage = json_of(rank.shares);
    stage["flops"] = rank.flops;
    json["pipe"].push_back(std::move(stage));
    idle += rank.shares.waiting / rank.shares.total();
  }
  json["bubble"] = idle / static_cast<double>(time.ranks.size());
  return json;
}

/// "(zero3: waiting by place along pipe 4.1 %, 9.8 %)", shortened to fit a line.
std::string place_line(Strategy strategy, const StepTime& time) {
  constexpr std::size_t most = 8;
  std::vector<std::string> parts;
  for (const RankTime& rank : time.ranks) {
    if (parts.size() == most) { break; }
    parts.push_back(fmt::format("{:.1f} %", 100 * rank.shares.waiting / rank.shares.total()));
  }
  return fmt::format("({}: waiting by place along pipe {}{})\n", to_string(strategy),
                     fmt::join(parts, ", "), time.ranks.size() > most ? ", ..." : "");
}

/// The mean over all ranks.
StepTime over_all(StepTime time) {
  const auto count = static_cast<double>(time.ranks.size());
  time.flops = 0;
  time.shares = {};
  for (const RankTime& rank : time.ranks) {
    time.flops += rank.flops / count;
    time.shares.computing += rank.shares.computing / count;
    time.shares.memory += rank.shares.memory / count;
    time.shares.bandwidth += rank.shares.bandwidth / count;
    time.shares.latency += rank.shares.latency / count;
    time.shares.waiting += rank.shares.waiting / count;
  }
  return time;
}

}  // namespace

void plan_times(const Settings& settings, const std::vector<Strategy>& strategies, Json& json) {
  if (settings.machine.empty()) { return; }
  check_time(settings);  // a search may have changed the batch
  const MachineProfile profile = profile_of(settings).value();
  const double tokens =
      static_cast<double>(tokens_of_rank(settings)) * static_cast<double>(data_ranks(settings));
  Table table{{"strategy", "ms a step", "tokens/s", "TFLOP/s", "kernels", "bandwidth", "latency",
               "waiting", "bound by"}};
  std::string by_place;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const StepTime time = plan_time(settings, strategies[i], profile);
    const bool stages = time.ranks.size() > 1 && ranks_along(settings, "pipe") > 1;
    add_row(table, strategies[i], stages ? over_all(time) : time, tokens);
    if (stages) { by_place += place_line(strategies[i], time); }
    Json& strategy = json["strategies"][i];
    strategy["seconds_per_step"] = time.seconds;
    strategy["tokens_per_second"] = tokens / time.seconds;
    strategy["time"] = time_json(settings, time);
  }
  json["machine"] = {{"name", profile.name}, {"source", profile.source}};
  fmt::print(
      "\nOn {}, {:.0f} tokens a step\n{}(tokens a second of all ranks, FLOPs of one; bandwidth and "
      "latency: of communication that no kernel\nhides; waiting: for the host or other ranks)\n{}",
      profile.name, tokens, table.text(), by_place);
}

}  // namespace tessera::tools
