#include "tools/train/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "tessera/base/bytes.hpp"
#include "tools/common/exit_status.hpp"
#include "tools/common/noted_signals.hpp"
#include "tools/common/say.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/compare/comparison.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/plan_document.hpp"
#include "tools/train/progress.hpp"
#include "tools/train/promises.hpp"
#include "tools/train/report.hpp"
#include "tools/train/trainer.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

/// A whole number without decimals: 1, not 1.0.
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

/// Planned peaks, one per rank.
std::vector<std::size_t> planned_peaks(const Job& job) {
  std::vector<std::size_t> peaks;
  for (int rank = 0; rank < job.settings.ranks; ++rank) {
    peaks.push_back(job.planned(job.settings.sharded.strategy, rank).memory.peak_bytes);
  }
  return peaks;
}

/// "100 steps", "steps 13 to 100".
std::string steps_of(const Job& job) {
  const std::int64_t steps = job.settings.steps;
  return job.resume ? fmt::format("steps {} to {}", job.resume->step + 1, steps)
                    : fmt::format("{} steps", steps);
}

std::string title(const Job& job) {
  const Settings& settings = job.settings;
  const std::string precision = describe_precision(settings);
  return fmt::format(
      "{}: {} parameters, {} on {} ranks{}, {} x {} tokens a {}{}, {}{}{}\n", job.model.name,
      job.model.config.parameter_elems(), describe_strategy(settings, settings.sharded.strategy),
      settings.ranks, describe_ranks(settings), settings.batch, job.model.config.seq,
      data_rank_word(settings),
      settings.sharded.accumulate > 1 ? fmt::format(" x {}", settings.sharded.accumulate) : "",
      steps_of(job), precision == "fp32" ? "" : ", " + precision, describe_forward(settings));
}

constexpr std::string_view kWeights = "model.safetensors";

/// The folder of the newest checkpoint, as --checkpoint was typed.
fs::path checkpoint_of(const Job& job, const RunResult& result) {
  return fs::path{job.settings.checkpoint} / result.checkpoint.path.filename();
}

/// Whether the newest checkpoint is in parts, of which this machine has one.
bool is_in_parts(const RunResult& result) {
  return step_of(result.checkpoint.path) != result.checkpoint.step;
}

/// Completes "weights in" for the newest checkpoint. Weights in several files have no single name
/// in the run's folder, and those of a part are no weights.
std::string weights_of(const Job& job, const RunResult& result) {
  if (is_in_parts(result)) {
    return fmt::format("the parts of all machines, of which {} is one (tessera checkpoint merge)",
                       checkpoint_of(job, result).string());
  }
  const fs::path weights = checkpoint_of(job, result) / kWeights;
  if (!fs::exists(weights)) { return weights.string() + ".index.json"; }
  const fs::path name = fs::path{job.settings.checkpoint} / kWeights;
  return (result.checkpoint.warning.empty() && fs::exists(name) ? name : weights).string();
}

/// Warns if the file in the run's folder that should be the newest weights holds others.
void warn_of_other_weights(const Job& job, const RunResult& result) {
  if (result.checkpoint.warning.empty()) { return; }
  tell(fmt::format("warning: --checkpoint: {} does not hold the newest weights: {}; use {}\n",
                   (fs::path{job.settings.checkpoint} / kWeights).string(),
                   result.checkpoint.warning, weights_of(job, result)));
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
                  format_bytes(job.planned(job.settings.sharded.strategy, 0).memory.peak_bytes)));
  say(host_threads_line(job, result));
  for (const DeviceLedger& ledger : result.devices) { say(fmt::format("\n{}", ledger.text())); }
  if (!result.checkpoint.path.empty()) {
    const DType precision = job.settings.sharded.compute;
    say(fmt::format("checkpoint of step {} in {}\n", result.checkpoint.step,
                    checkpoint_of(job, result).string()));
    say(fmt::format(
        "weights in {}{}\n", weights_of(job, result),
        precision == DType::fp32
            ? ""
            : fmt::format(", rounded to {}: not the fp32 master weights", to_string(precision))));
  }
  if (!result.not_saved.empty()) {
    tell(fmt::format("error: --checkpoint: {}\n", result.not_saved));
  }
  if (result.saves_failed > 0) {
    say(
        fmt::format("checkpoints that could not be written during the run: {}; the last one is "
                    "whole\n",
                    result.saves_failed));
  }
  if (job.outputs->log) { say(job.outputs->log->complaint()); }
}

/// The line that says that a signal was received and after which step the run ends.
std::string stopping(int signal) {
  return fmt::format(
      "{}: the run ends after the current step; a second signal ends it at once, without weights\n",
      signal_name(signal));
}

std::string stopped(const Job& job, const RunResult& result) {
  const std::string& folder = job.settings.checkpoint;
  return fmt::format("stopped by {} after step {} of {}; {}\n", signal_name(result.stopped_by),
                     result.steps.back().report.step, job.settings.steps,
                     folder.empty()
                         ? "without --checkpoint no weights are written"
                         : fmt::format("its weights are in {}, and --resume continues from there",
                                       weights_of(job, result)));
}

/// Changes what an earlier run left only once this run can start.
void begin_outputs(const Job& job) {
  if (job.resume) {
    for (const std::string& message : set_damaged_aside(job)) { tell(message); }
  }
  if (job.outputs->log) { job.outputs->log->begin(job.steps_before()); }
}

/// Trains, and reports each step as it ends.
RunResult trained(const Job& job) {
  const std::vector<std::size_t> planned = planned_peaks(job);
  Progress progress{stdout, progress_output(job), "", job.settings.steps, job.steps_before()};
  bool told = false;
  const auto on_step = [&](const StepRecord& record) {
    if (job.outputs->log) {
      const std::string failure =
          job.outputs->log->add(record.report.step, log_line(record, planned));
      if (!failure.empty()) { progress.tell(failure); }
    }
    if (!record.not_saved.empty()) {
      progress.tell(fmt::format("error: --checkpoint: {}; the run continues\n", record.not_saved));
    }
    if (record.moved) {
      progress.tell(
          fmt::format("note: --checkpoint: {} was renamed or removed during the run; from now on "
                      "checkpoints are saved in a new folder of that name\n",
                      job.settings.checkpoint));
    }
    progress.tell_if_skipped(record.report);
    progress.show(record);
    if (record.stopped_by != 0 && !std::exchange(told, true)) {
      progress.tell(stopping(record.stopped_by));
    }
  };
  return run_training(job, job.settings.sharded.strategy, on_step, [&](const auto& places) {
    for (const std::string& place : places) { say(place + "\n"); }
    begin_outputs(job);
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

/// Reports what the run continues from, on behalf of all ranks.
void tell_of_resume(const Job& job) {
  if (!job.resume || !has_rank0(job.settings)) { return; }
  for (const std::string& message : job.resume->messages) { tell(message); }
  say(fmt::format("resumed from {}, after step {}\n", job.resume->path.string(), job.resume->step));
}

/// Reports what the run is, and trains.
RunResult begun(const Job& job) {
  tell_of_resume(job);
  if (has_rank0(job.settings)) { say(title(job)); }
  return trained(job);
}

void say_that_all_is_done(const Job& job) {
  if (!has_rank0(job.settings)) { return; }
  say(fmt::format("nothing is left to train: {} was saved after step {}, and --steps is {}\n",
                  job.resume->path.string(), job.resume->step, job.settings.steps));
}

}  // namespace

void train(const Settings& settings) {
  // The reader of the log or of standard output may end, perhaps by the signal that ends this run:
  // the weights must still be written.
  std::signal(SIGPIPE, SIG_IGN);
  Job job = prepare(settings, {settings.sharded.strategy});
  if (job.is_done()) { return say_that_all_is_done(job); }
  const NotedSignals noted;
  RunResult result = begun(job);
  while (!result.damage.empty()) {
    job.resume = in_turn([&] { return find_older(job, result.damage); });
    result = begun(job);
  }
  if (!has_rank0(job.settings)) { return; }
  if (result.stopped_by != 0) { tell(stopped(job, result)); }
  print_result(job, result);
  warn_of_other_weights(job, result);
  write_report("train", train_document(job, result), job.settings, {result});
  write_trace(job.settings, result);
  warn_if_diverged("", result);
  require_as_planned(job, result);
  // Only the process with rank 0 returns the signal's status: a launcher ends a job as soon as one
  // process fails, and the others have nothing left to do.
  if (result.stopped_by != 0) { throw Ended{128 + result.stopped_by}; }
  if (job.outputs->log && !job.outputs->log->is_complete()) {
    throw Ended{static_cast<int>(ExitStatus::other)};
  }
}

}  // namespace tessera::tools
