#include "tools/scale/scale_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tools/common/json_text.hpp"
#include "tools/common/output_file.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/scale/scale_document.hpp"
#include "tools/scale/scale_measure.hpp"
#include "tools/train/report.hpp"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// The default numbers of ranks, each raised to the next multiple of the mesh's ranks.
std::vector<int> counts_of_mesh(const Settings& settings) {
  const int split = MeshShape{settings.sharded.mesh}.ranks();
  std::vector<int> counts;
  for (const int count : settings.rank_counts) {
    const int fits = round_up(count, split);
    if (counts.empty() || counts.back() != fits) { counts.push_back(fits); }
  }
  return counts;
}

/// Calls check_planned_groups for the mesh of every point.
void check_points(const Settings& settings) {
  if (settings.sharded.mesh.empty()) {
    return check_planned_groups(settings, settings.strategies, settings.rank_counts);
  }
  for (const auto& [name, size] : settings.sharded.mesh) {
    if (name != "shard" && name != "replicate") { continue; }
    throw ConfigError(
        fmt::format("--mesh {}={}: the ranks that --mesh leaves are along {}; give pipe and tensor "
                    "alone",
                    name, size, name));
  }
  for (const Strategy strategy : settings.strategies) {
    for (const int ranks : settings.rank_counts) {
      check_planned_groups(settings_of_point(settings, strategy, ranks), {strategy}, {ranks});
    }
  }
}

void check_scale(const Settings& settings) {
  if (!settings.json.empty()) { require_writable("--json", settings.json); }
  if (!settings.report.empty()) { require_writable("--report", settings.report); }
  require_apart({{"--json", settings.json}, {"--report", settings.report}});
  check_planned(settings);
  if (settings.measure) { require_device(settings); }
  check_optimizer(settings);
  check_gathering(settings, settings.strategies);
  check_points(settings);
}

void measure_points(ScaleResult& result) {
  for (ScalePoint& point : result.points) {
    const auto begin = Clock::now();
    point.measured = measure(result.settings, point);
    if (point.measured->peak_bytes.empty()) { continue; }
    fmt::print("ran {} on {} ranks: {} parameters, two steps in {:.2g} s\n",
               to_string(point.strategy), point.ranks, format_count(point.model.parameter_elems()),
               std::chrono::duration<double>(Clock::now() - begin).count());
    std::fflush(stdout);
  }
}

void write_outputs(const ScaleResult& result) {
  const Settings& settings = result.settings;
  const nlohmann::ordered_json json = scale_json(result);
  if (!settings.json.empty()) {
    const std::string text = json_text(json, 2) + "\n";
    write_output(settings.json, text);
    fmt::print("results in {}\n", settings.json);
  }
  write_report("scale", json, settings, {});
}

/// OutOfMemory, with the largest category, unless a model fits.
void require_fit(const ScaleResult& result) {
  if (std::ranges::any_of(result.points, &ScalePoint::fits)) { return; }
  const ScalePoint& nearest = *std::ranges::min_element(result.points, {}, &ScalePoint::peak_bytes);
  const RankPlan& rank = nearest.plan.fullest();
  throw OutOfMemory(fmt::format(
      "--budget {}: not even the smallest {} model fits ({} layers, hidden {}); it needs the least "
      "under {} on {} ranks, where rank {} would hold {}\nuse --budget {} or more, a "
      "smaller --batch, --seq or --vocab, more --ranks, or a strategy that shards more",
      format_bytes(result.budget_bytes), result.family.name, nearest.model.layers,
      nearest.model.hidden, to_string(nearest.strategy), nearest.ranks, rank.rank,
      describe(rank.memory.at_peak), rank.memory.peak_bytes));
}

/// Reports how many points ran and that they held what was planned. Error if they did not.
void judge(const ScaleResult& result) {
  if (const std::string text = deviation(result.points); !text.empty()) {
    throw Error("measured memory differs from the plan: " + text.substr(0, text.size() - 1));
  }
  const auto ran = std::ranges::count_if(result.points, [](const ScalePoint& point) {
    return point.measured && !point.measured->peak_bytes.empty();
  });
  const std::size_t all = result.points.size();
  if (ran == 0) {
    fmt::print("\nmeasured none of {} points; the lines above say why\n", all);
    return;
  }
  fmt::print("\nmeasured {} of {} points: as planned on every rank, to the byte\n", ran, all);
}

}  // namespace

void scale_command(const Settings& asked) {
  Settings settings = asked;
  settings.strategies = strategies_on(asked, asked.strategies);
  if (!settings.sharded.mesh.empty() && !settings.has("--ranks")) {
    settings.rank_counts = counts_of_mesh(settings);
  }
  check_scale(settings);
  const Family family = family_of(settings);
  const std::size_t budget = scale_budget(settings);
  ScaleResult result{settings, family, budget, scale_points(settings, family, budget)};
  if (settings.measure) { measure_points(result); }
  if (std::ranges::any_of(result.points, &ScalePoint::fits)) {
    fmt::print("{}\n{}", scale_text(result), scale_chart(result));
  }
  write_outputs(result);
  require_fit(result);
  if (settings.measure) { judge(result); }
}

}  // namespace tessera::tools
