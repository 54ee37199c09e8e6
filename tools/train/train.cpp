#include "tools/train/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tools/common/exit_status.hpp"
#include "tools/common/noted_signals.hpp"
#include "tools/common/say.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/compare/comparison.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/plan_document.hpp"
#include "tools/train/progress.hpp"
#include "tools/train/promises.hpp"
#include "tools/train/report.hpp"
#include "tools/train/trainer.hpp"

namespace tessera::tools {
namespace {

/// A whole number as such: 1, not 1.0.
nlohmann::ordered_json plain(float value) {
  if (value == std::floor(value)) { return static_cast<std::int64_t>(value); }
  return shortest(value);
}

std::string log_line(const StepRecord& record, const std::vector<std::size_t>& planned) {
  nlohmann::ordered_json line = {
      {"step", record.report.step},
      {"loss", record.report.loss},
      {"grad_norm", record.report.grad_norm},
      {"lr", shortest(record.report.lr)},
      {"loss_scale", plain(record.report.loss_scale)},
      {"skipped", record.report.skipped},
      {"seconds", record.seconds},
      {"tokens_per_second", record.tokens_per_second},
      {"peak_bytes", record.peak_bytes},
      {"planned_peak_bytes", planned},
  };
  if (record.eval_loss) { line["eval_loss"] = *record.eval_loss; }
  const std::string diverged = record.last ? divergence(record.report) : "";
  if (!diverged.empty()) { line["diverged"] = diverged; }
  return line.dump() + "\n";
}

/// Of each rank.
std::vector<std::size_t> planned_peaks(const Job& job) {
  std::vector<std::size_t> peaks;
  for (int rank = 0; rank < job.settings.ranks; ++rank) {
    peaks.push_back(job.planned(job.settings.strategy, rank).memory.peak_bytes);
  }
  return peaks;
}

std::string title(const Job& job) {
  const Settings& settings = job.settings;
  const std::string precision = describe_precision(settings);
  return fmt::format("{}: {} parameters, {} on {} ranks{}, {} x {} tokens a rank{}, {} steps{}{}\n",
                     job.model.name, job.model.config.parameter_elems(),
                     describe_strategy(settings, settings.strategy), settings.ranks,
                     describe_ranks(settings), settings.batch, job.model.config.seq,
                     settings.accumulate > 1 ? fmt::format(" x {}", settings.accumulate) : "",
                     settings.steps, precision == "fp32" ? "" : ", " + precision,
                     describe_forward(settings));
}

void print_result(const Job& job, const RunResult& result) {
  if (!result.steps.empty()) {
    const double seconds = result.seconds_per_step();
    say(fmt::format("loss {:.4f} -> {:.4f}  {:.3g} s/step  {:.0f} tokens/s\n",
                    result.steps.front().report.loss, result.steps.back().report.loss, seconds,
                    static_cast<double>(job.settings.tokens_per_step()) / seconds));
  }
  if (!result.steps.empty() && result.steps.back().eval_loss) {
    say(fmt::format("held-out loss {:.4f}\n", *result.steps.back().eval_loss));
  }
  std::size_t most = 0;
  for (const RankMemory& rank : result.ranks) { most = std::max(most, rank.peak_bytes); }
  say(fmt::format("peak memory {} on rank 0, {} at most; planned {}\n",
                  format_bytes(result.ranks[0].peak_bytes), format_bytes(most),
                  format_bytes(job.planned(job.settings.strategy, 0).memory.peak_bytes)));
  say(host_threads_line(job, result));
  for (const DeviceLedger& ledger : result.devices) { say(fmt::format("\n{}", ledger.text())); }
  if (!job.settings.checkpoint.empty()) {
    const DType precision = job.settings.precision;
    say(fmt::format("weights in {}/model.safetensors{}\n", job.settings.checkpoint,
                    precision == DType::fp32
                        ? ""
                        : fmt::format(", as rounded to {}: not the fp32 master weights",
                                      to_string(precision))));
  }
  if (job.outputs->log) { say(job.outputs->log->complaint()); }
}

/// That a signal has been noted, when it is known after which step the run ends.
std::string stopping(int signal) {
  return fmt::format(
      "{}: the run ends with the step under way; a second signal ends it at once, without "
      "weights\n",
      signal_name(signal));
}

std::string stopped(const Job& job, const RunResult& result) {
  const std::string& folder = job.settings.checkpoint;
  return fmt::format("stopped by {} after step {} of {}; {}\n", signal_name(result.stopped_by),
                     result.steps.back().report.step, job.settings.steps,
                     folder.empty()
                         ? "without --checkpoint no weights are written"
                         : fmt::format("its weights are in {}/model.safetensors", folder));
}

/// Trains, and tells of each step as it comes.
RunResult trained(const Job& job) {
  const std::vector<std::size_t> planned = planned_peaks(job);
  Progress progress{stdout, progress_output(job), "", job.settings.steps};
  bool told = false;
  return run_training(job, job.settings.strategy, [&](const StepRecord& record) {
    if (job.outputs->log) {
      const std::string failure =
          job.outputs->log->add(record.report.step, log_line(record, planned));
      if (!failure.empty()) { progress.tell(failure); }
    }
    progress.tell_if_skipped(record.report);
    progress.show(record);
    if (record.stopped_by != 0 && !std::exchange(told, true)) {
      progress.tell(stopping(record.stopped_by));
    }
  });
}

nlohmann::ordered_json train_document(const Job& job, const RunResult& result) {
  nlohmann::ordered_json document = comparison_json(job, {result});
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const StepRecord& step : result.steps) {
    steps.push_back(
        {{"step", step.report.step}, {"loss", step.report.loss}, {"seconds", step.seconds}});
    if (step.eval_loss) { steps.back()["eval_loss"] = *step.eval_loss; }
  }
  document["steps"] = steps;
  return document;
}

}  // namespace

void train(const Settings& settings) {
  // A reader of the log or of standard output may go, or die of the signal that ends this run, too:
  // its weights are written all the same.
  std::signal(SIGPIPE, SIG_IGN);
  const Job job = prepare(settings, {settings.strategy});
  const NotedSignals noted;
  if (has_rank0()) {
    if (job.outputs->log) { job.outputs->log->begin(); }
    say(title(job));
  }
  const RunResult result = trained(job);
  if (!has_rank0()) { return; }
  if (result.stopped_by != 0) { tell(stopped(job, result)); }
  print_result(job, result);
  write_report("train", train_document(job, result), settings, {result});
  write_trace(settings, result);
  warn_if_diverged("", result);
  require_as_planned(job, result);
  // The process with rank 0 alone: a launcher ends a job of which one process has failed, and the
  // others have nothing left to do.
  if (result.stopped_by != 0) { throw Ended{128 + result.stopped_by}; }
  if (job.outputs->log && !job.outputs->log->is_complete()) {
    throw Ended{static_cast<int>(ExitStatus::other)};
  }
}

}  // namespace tessera::tools
