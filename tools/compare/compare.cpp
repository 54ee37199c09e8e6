#include "tools/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/json_text.hpp"
#include "tools/common/output_file.hpp"
#include "tools/compare/comparison.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/train/progress.hpp"
#include "tools/train/promises.hpp"
#include "tools/train/report.hpp"

namespace tessera::tools {
namespace {

RunResult run(const Job& job, Strategy strategy) {
  const Progress::Output output = progress_output(job);
  Progress progress{stdout, output, fmt::format("{:<6}", to_string(strategy)), job.settings.steps};
  RunResult result = run_training(job, strategy, [&](const StepRecord& record) {
    progress.tell_if_skipped(record.report);
    const bool last = record.report.step == job.settings.steps;
    if (output == Progress::Output::terminal || last) { progress.show(record); }
  });
  return result;
}

/// The mode for all strategies. `automatic` depends on the strategy, and modes add gradients in
/// different orders, which would make the losses incomparable.
AccumulateMode mode_of_all(const Settings& settings) {
  // A pipeline defers reductions under all strategies.
  if (settings.sharded.accumulate == 1 || ranks_along(settings, "pipe") > 1) {
    return settings.sharded.accumulate_mode;
  }
  const bool every = std::ranges::any_of(settings.strategies, [&](Strategy strategy) {
    return resolve(settings.sharded.accumulate_mode, strategy) == AccumulateMode::every;
  });
  return every ? AccumulateMode::every : AccumulateMode::deferred;
}

}  // namespace

void compare(const Settings& asked) {
  Settings settings = asked;
  settings.strategies = strategies_on(asked, asked.strategies);
  settings.sharded.accumulate_mode = mode_of_all(settings);
  const Job job = prepare(settings, settings.strategies);
  std::vector<RunResult> results;
  for (const Strategy strategy : settings.strategies) { results.push_back(run(job, strategy)); }
  if (!has_rank0(job.settings)) { return; }
  fmt::print("\n{}", comparison_text(job, results));
  if (!settings.json.empty()) {
    const std::string text = json_text(comparison_json(job, results), 2) + "\n";
    write_output(settings.json, text);
    fmt::print("comparison in {}\n", settings.json);
  }
  write_report("compare", comparison_json(job, results), job.settings, results);
  for (const RunResult& result : results) {
    warn_if_diverged(fmt::format("{}: ", to_string(result.strategy)), result);
  }
  for (const RunResult& result : results) { require_as_planned(job, result); }
  require_same_losses(job.settings, results);
}

}  // namespace tessera::tools
