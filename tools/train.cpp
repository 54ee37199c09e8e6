#include "train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "comparison.hpp"
#include "output_file.hpp"
#include "plan_document.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "shard_group.hpp"
#include "tessera/base/bytes.hpp"
#include "trainer.hpp"

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
    fmt::print("loss {:.4f} -> {:.4f}  {:.3g} s/step  {:.0f} tokens/s\n",
               result.steps.front().report.loss, result.steps.back().report.loss, seconds,
               static_cast<double>(job.settings.tokens_per_step()) / seconds);
  }
  if (!result.steps.empty() && result.steps.back().eval_loss) {
    fmt::print("held-out loss {:.4f}\n", *result.steps.back().eval_loss);
  }
  std::size_t most = 0;
  for (const RankMemory& rank : result.ranks) { most = std::max(most, rank.peak_bytes); }
  fmt::print("peak memory {} on rank 0, {} at most; planned {}\n",
             format_bytes(result.ranks[0].peak_bytes), format_bytes(most),
             format_bytes(job.planned(job.settings.strategy, 0).memory.peak_bytes));
  fmt::print("{}", host_threads_line(job, result));
  for (const DeviceLedger& ledger : result.devices) { fmt::print("\n{}", ledger.text()); }
  if (!job.settings.checkpoint.empty()) {
    const DType precision = job.settings.precision;
    fmt::print(
        "weights in {}/model.safetensors{}\n", job.settings.checkpoint,
        precision == DType::fp32
            ? ""
            : fmt::format(", as rounded to {}: not the fp32 master weights", to_string(precision)));
  }
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
  const Job job = prepare(settings, {settings.strategy});
  std::optional<OutputFile> log;
  if (has_rank0()) {
    if (!settings.log.empty()) { log.emplace(settings.log); }
    fmt::print("{}", title(job));
  }
  const std::vector<std::size_t> planned = planned_peaks(job);
  RunResult result;
  {
    Progress progress{stdout, progress_output(job), "", settings.steps};
    result = run_training(job, settings.strategy, [&](const StepRecord& record) {
      if (log) { log->write(log_line(record, planned)); }
      progress.tell_if_skipped(record.report);
      progress.show(record);
    });
  }
  if (!has_rank0()) { return; }
  print_result(job, result);
  write_report("train", train_document(job, result), settings, {result});
  write_trace(settings, result);
}

}  // namespace tessera::tools
