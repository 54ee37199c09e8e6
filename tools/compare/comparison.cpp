#include "tools/compare/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/base/bytes.hpp"
#include "tools/common/table.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/model_words.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/plan_document.hpp"
#include "tools/train/promises.hpp"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

// The JSON has all ranks; those beyond these resemble rank 1.
constexpr std::size_t kRanksSideBySide = 8;

Json json_of(const Settings& settings, const RankMemory& rank, const RankPlan& planned) {
  Json json = {{"rank", rank.rank},
               {"planned_peak_bytes", planned.memory.peak_bytes},
               {"peak_bytes", rank.peak_bytes},
               {"at_peak", tools::json_of(rank.at_peak)},
               {"model_state_bytes", tools::json_of(rank.state)}};
  if (!settings.sharded.mesh.empty()) { json["place"] = place_json(settings, rank.rank); }
  add_host_pool(json, planned.host_peak_bytes, rank.host_peak_bytes);
  return json;
}

std::string_view counted(DeviceUse::Of of) {
  if (of == DeviceUse::Of::process) { return "process"; }
  return of == DeviceUse::Of::newcomers ? "newcomers" : "everybody";
}

Json json_of(const DeviceLedger& ledger) {
  Json rows;
  for (const LedgerRow& row : ledger.rows()) { rows[row.name] = row.bytes; }
  Json json = {{"device", ledger.device},
               {"id", ledger.use.id},
               {"ranks", ledger.ranks},
               {"counted", counted(ledger.use.of)},
               {"used_bytes", ledger.use.used_bytes},
               {"rows", rows}};
  if (!ledger.use.communicated.empty()) { json["communicated"] = ledger.use.communicated; }
  return json;
}

double tokens_per_second(const Job& job, const RunResult& result) {
  return static_cast<double>(job.settings.tokens_per_step()) / result.seconds_per_step();
}

Json json_of(const Job& job, const RunResult& result) {
  Json losses = Json::array();
  for (const StepRecord& step : result.steps) { losses.push_back(step.report.loss); }
  Json ranks = Json::array();
  for (const RankMemory& rank : result.ranks) {
    const RankPlan& planned = job.planned(result.strategy, rank.rank);
    ranks.push_back(json_of(job.settings, rank, planned));
    if (job.settings.sharded.offload == Offload::optimizer) {
      ranks.back()["host_threads"] = rank.host_threads;
    }
  }
  const std::string diverged = result.steps.empty() ? "" : divergence(result.steps.back().report);
  Json json = {{"name", to_string(result.strategy)},
               {"seconds_per_step", result.seconds_per_step()},
               {"tokens_per_second", tokens_per_second(job, result)},
               {"losses", losses},
               {"diverged", diverged.empty() ? Json() : Json(diverged)},
               {"ranks", ranks}};
  for (const DeviceLedger& ledger : result.devices) { json["devices"].push_back(json_of(ledger)); }
  return json;
}

const RunResult* find(const std::vector<RunResult>& results, Strategy strategy) {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&](const RunResult& r) { return r.strategy == strategy; });
  return found == results.end() ? nullptr : &*found;
}

/// `rank`'s peak as a multiple of the same rank's under ddp.
std::string against_ddp(const RankMemory& rank, const RunResult* ddp) {
  if (ddp == nullptr) { return "-"; }
  const auto base = static_cast<double>(ddp->ranks[static_cast<std::size_t>(rank.rank)].peak_bytes);
  return fmt::format("{:.2f}", static_cast<double>(rank.peak_bytes) / base);
}

std::vector<std::string> memory_cells(const RankMemory& rank, const RunResult* ddp) {
  const std::size_t slots = rank.at_peak[Category::gather] + rank.at_peak[Category::reduce];
  const std::size_t state = rank.state.parameters + rank.state.gradients + rank.state.optimizer;
  return {format_bytes(rank.state.parameters),
          format_bytes(rank.state.gradients),
          format_bytes(rank.state.optimizer),
          format_bytes(slots),
          format_bytes(rank.peak_bytes - std::min(rank.peak_bytes, state + slots)),
          format_bytes(rank.peak_bytes),
          against_ddp(rank, ddp)};
}

void add_row(Table& table, std::vector<std::string> first, const RankMemory& rank,
             const RunResult* ddp) {
  const std::vector<std::string> rest = memory_cells(rank, ddp);
  first.insert(first.end(), rest.begin(), rest.end());
  table.add(std::move(first));
}

bool all_alike(const std::vector<RankMemory>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const RankMemory& rank) {
    return rank.peak_bytes == ranks[0].peak_bytes && rank.state == ranks[0].state;
  });
}

/// The rank other than 0 with the highest peak.
const RankMemory& fullest_other(const RunResult& result) {
  return *std::max_element(
      result.ranks.begin() + 1, result.ranks.end(),
      [](const RankMemory& a, const RankMemory& b) { return a.peak_bytes < b.peak_bytes; });
}

std::string cost_table(const Job& job, const std::vector<RunResult>& results) {
  const RunResult* ddp = find(results, Strategy::ddp);
  Table table{{"strategy", "rank", "s/step", "tokens/s", "params", "grads", "optim", "slots",
               "other", "peak", "/ddp"}};
  for (const RunResult& result : results) {
    const bool alike = all_alike(result.ranks);
    add_row(table,
            {std::string{to_string(result.strategy)}, alike ? "all" : "0",
             fmt::format("{:.3f}", result.seconds_per_step()),
             fmt::format("{:.0f}", tokens_per_second(job, result))},
            result.ranks[0], ddp);
    if (!alike) { add_row(table, {"", "rest", "", ""}, fullest_other(result), ddp); }
  }
  return table.text() +
         "(model state, slots for gathered parameters and full gradients, activations and other "
         "memory)\n";
}

std::string rank_table(const std::vector<RunResult>& results) {
  const std::size_t ranks = std::min(results.front().ranks.size(), kRanksSideBySide);
  std::vector<std::string> head = {"peak bytes"};
  for (std::size_t r = 0; r < ranks; ++r) { head.push_back(fmt::format("rank {}", r)); }
  Table table{head};
  for (const RunResult& result : results) {
    std::vector<std::string> row = {std::string{to_string(result.strategy)}};
    for (std::size_t r = 0; r < ranks; ++r) {
      row.push_back(format_bytes(result.ranks[r].peak_bytes));
    }
    table.add(std::move(row));
  }
  return table.text();
}

std::string describe(const Job& job) {
  const Settings& settings = job.settings;
  const nn::DecoderConfig& config = job.model.config;
  const std::string threads =
      settings.world.threads > 1 ? fmt::format(" of {} threads", settings.world.threads) : "";
  return fmt::format(
      "{}: {} parameters ({})\n"
      "{} ranks{}{}, {} samples a {} and micro-batch, {} micro-batches a step, {} "
      "steps, seed {}, "
      "{}{}\n{}",
      job.model.name, config.parameter_elems(), describe_sizes(config), settings.ranks,
      describe_ranks(settings), threads, settings.batch, data_rank_word(settings),
      settings.sharded.accumulate, settings.steps, settings.seed,
      describe_precision(settings) + describe_optimizer(settings),
      describe_forward(settings) + describe_groups(settings),
      settings.sharded.accumulate > 1 ? fmt::format("accumulate mode {} under all strategies\n",
                                                    to_string(settings.sharded.accumulate_mode))
                                      : "");
}

/// The first step whose losses differ in a bit; empty if none.
std::optional<std::size_t> first_difference(const RunResult& a, const RunResult& b) {
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    if (!same_loss(a.steps[i].report.loss, b.steps[i].report.loss)) { return i; }
  }
  return {};
}

/// The largest difference between two runs' losses of a step, relative to the first run.
double largest_difference(const RunResult& a, const RunResult& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const double x = a.steps[i].report.loss;
    largest = std::max(largest, std::abs(b.steps[i].report.loss - x) / std::abs(x));
  }
  return largest;
}

}  // namespace

Json comparison_json(const Job& job, const std::vector<RunResult>& results) {
  const nn::DecoderConfig& config = job.model.config;
  Json strategies = Json::array();
  for (const RunResult& result : results) { strategies.push_back(json_of(job, result)); }
  Json json = {
      {"model", model_json(job.model.name, results.front().parameters, config)},
      {"ranks", job.settings.ranks},
      {"threads", job.settings.world.threads},
      {"device", to_string(job.settings.world.device)},
      {"comm", comm_name(job.settings)},
      {"graph", job.settings.graph},
      {"deterministic", job.settings.world.deterministic},
      {"channel_priority", to_string(job.settings.world.tuning.channel_priority)},
      {"spared_multiprocessors", job.settings.world.tuning.spared_multiprocessors},
      {"nccl",
       {{"min_ctas", job.settings.world.nccl.min_ctas},
        {"max_ctas", job.settings.world.nccl.max_ctas},
        {"windows", job.settings.world.nccl.windows}}},
      {"nondeterministic_attention", job.settings.world.nondeterministic_attention},
      {"products",
       job.settings.world.products.empty() ? Json{} : Json(job.settings.world.products)},
      {"batch", job.settings.batch},
      {"accumulate", job.settings.sharded.accumulate},
      {"accumulate_mode", to_string(job.settings.sharded.accumulate_mode)},
      {"precision", to_string(job.settings.sharded.compute)},
      {"gradient_dtype", to_string(job.settings.sharded.gradient)},
      {"reduce_dtype", to_string(job.settings.sharded.reduce)},
      {"loss_scaling",
       tessera::describe(job.settings.sharded.loss_scaling, job.settings.sharded.compute,
                         job.settings.sharded.gradient)},
      {"max_skips", job.settings.sharded.max_skips},
      {"optimizer", to_string(job.settings.optimizer)},
      {"moments", to_string(job.settings.update.moments)},
      {"master_weights", to_string(job.settings.sharded.master_weights)},
      {"shard_group", shard_group_json(job.settings)},
      {"prefetch", job.settings.sharded.prefetch},
      {"prefetch_backward",
       job.settings.sharded.tuning.prefetch_backward.value_or(job.settings.sharded.prefetch)},
      {"reshard", to_string(job.settings.sharded.reshard)},
      {"persist_elems", job.settings.sharded.persist_elems},
      {"norm_dtype", to_string(job.settings.norm_dtype.value_or(job.settings.sharded.compute))},
      {"recompute", job.settings.recompute.describe()},
      {"head_rows", job.settings.head_rows},
      {"offload", offload_name(job.settings)},
      {"offload_keep", shortest(job.settings.sharded.offload_keep)},
      {"dropout", shortest(job.settings.dropout)},
      {"budget_bytes",
       job.settings.world.budget_bytes ? Json(*job.settings.world.budget_bytes) : Json()},
      {"steps", job.settings.steps},
      {"seed", job.settings.seed},
      {"strategies", strategies}};
  add_mesh(json, job.settings);
  return json;
}

std::string comparison_text(const Job& job, const std::vector<RunResult>& results) {
  std::string text = describe(job) + "\n" + cost_table(job, results) + "\n";
  if (job.settings.ranks > 1) { text += rank_table(results) + "\n"; }
  if (const std::string line = host_threads_line(job, results.front()); !line.empty()) {
    text += line + "\n";
  }
  return text + compare_losses(results) + "\n";
}

std::string host_threads_line(const Job& job, const RunResult& result) {
  if (job.settings.sharded.offload != Offload::optimizer) { return ""; }
  const auto [least, most] = std::ranges::minmax(
      result.ranks, {}, [](const RankMemory& rank) { return rank.host_threads; });
  const int a = least.host_threads;
  const int b = most.host_threads;
  return fmt::format("optimizer updated on the host, by {} thread{} a rank\n",
                     a == b ? fmt::format("{}", a) : fmt::format("{} to {}", a, b),
                     b == 1 ? "" : "s");
}

std::string compare_losses(const std::vector<RunResult>& results) {
  if (results.size() == 1) { return "losses: only one strategy, nothing to compare"; }
  const RunResult& base = *std::ranges::find_if(
      results, [](const RunResult& r) { return r.strategy != Strategy::hybrid; });
  std::size_t same = 0;
  std::string regrouped;
  for (const RunResult& result : results) {
    const auto step = first_difference(base, result);
    if (!step) {
      ++same;
    } else if (result.strategy == Strategy::hybrid) {
      regrouped = fmt::format("; hybrid, which adds gradients group by group, within {:.1e} of {}",
                              largest_difference(base, result), to_string(base.strategy));
    } else {
      return fmt::format("losses: {} and {} differ from step {} on ({:.17g} and {:.17g})",
                         to_string(base.strategy), to_string(result.strategy), *step + 1,
                         base.steps[*step].report.loss, result.steps[*step].report.loss);
    }
  }
  const std::string alike = same == 1 ? std::string{to_string(base.strategy)}
                                      : fmt::format("bit-identical under {}{} strategies",
                                                    regrouped.empty() ? "all " : "", same);
  return fmt::format("losses: {} in all {} steps ({:.4f} -> {:.4f}){}", alike, base.steps.size(),
                     base.steps.front().report.loss, base.steps.back().report.loss, regrouped);
}

}  // namespace tessera::tools
