#include "tools/sample/sample.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tools/common/json_text.hpp"
#include "tools/common/output_file.hpp"
#include "tools/options/ranks.hpp"
#include "tools/options/shard_group.hpp"
#include "tools/plan/plan_document.hpp"
#include "tools/sample/sample_request.hpp"
#include "tools/train/init_file.hpp"
#include "tools/train/promises.hpp"
#include "tools/train/rank_gpt.hpp"
#include "tools/train/trainer.hpp"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Texts = std::vector<std::vector<std::int32_t>>;

struct SampleResult {
  Texts texts;
  std::vector<std::size_t> peak_bytes;  ///< by rank
  std::vector<std::size_t> plannable;   ///< the part of each that a plan can know
  double seconds = 0;
};

SampleResult run_sampling(const Job& job, const nn::Generation& generation) {
  SampleResult result;
  run_on_ranks(job.settings, [&](World& world) {
    auto gpt = sampling_gpt(world, job.settings, job.model.config, job.settings.sharded.strategy);
    gpt.materialize(job.settings.init.empty()
                        ? nn::hub_weights(*job.settings.model, *job.settings.hub)
                        : weights_from(job.settings.init, weight_name_in(job.init_names)));
    const auto begin = Clock::now();
    Texts texts = nn::generate(gpt.module(), world, generation);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const MemoryReport memory = world.memory().report();
    const auto peaks = every_rank(world, memory.peak_bytes);
    const auto plannable =
        every_rank(world, plannable_peak(job.settings, memory.peak_bytes, memory.at_peak));
    if (world.rank() == 0) { result = {std::move(texts), peaks, plannable, seconds}; }
  });
  return result;
}

/// Formats tokens as bytes if the prompt was text, otherwise as numbers.
std::string text_of(const Settings& settings, const std::vector<std::int32_t>& tokens) {
  if (!settings.prompt_tokens.empty()) { return fmt::format("{}", fmt::join(tokens, ",")); }
  std::string text;
  for (const std::int32_t token : tokens) { text += static_cast<char>(token); }
  return text;
}

std::string text_of(const Job& job, const nn::Generation& generation, const SampleResult& result) {
  const Settings& settings = job.settings;
  std::string text;
  for (std::size_t i = 0; i < result.texts.size(); ++i) {
    if (result.texts.size() > 1) {
      text += fmt::format("--- sample {} of {}\n", i + 1, result.texts.size());
    }
    std::vector<std::int32_t> all = generation.prompt;
    all.insert(all.end(), result.texts[i].begin(), result.texts[i].end());
    text += text_of(settings, all) + "\n";
  }
  const auto tokens = static_cast<double>(generation.samples * generation.tokens);
  const std::size_t most = std::ranges::max(result.peak_bytes);
  return text + fmt::format(
                    "---\n{}, {} on {} ranks: {:.0f} tokens/s; peak memory {} on rank 0, {} at "
                    "most; planned {}\n",
                    job.model.name, describe_strategy(settings, settings.sharded.strategy),
                    settings.ranks, tokens / result.seconds, format_bytes(result.peak_bytes[0]),
                    format_bytes(most),
                    format_bytes(job.planned(settings.sharded.strategy, 0).memory.peak_bytes));
}

Json json_of(const Job& job, const nn::Generation& generation, const SampleResult& result) {
  const Settings& settings = job.settings;
  Json samples = Json::array();
  for (const auto& tokens : result.texts) {
    Json sample = {{"tokens", tokens}};
    if (settings.prompt_tokens.empty()) { sample["text"] = text_of(settings, tokens); }
    samples.push_back(sample);
  }
  std::vector<std::size_t> planned;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    planned.push_back(job.planned(settings.sharded.strategy, rank).memory.peak_bytes);
  }
  return {{"kind", "sample"},
          {"command", settings.command_line},
          {"version", TESSERA_VERSION},
          {"model", job.model.name},
          {"strategy", to_string(settings.sharded.strategy)},
          {"shard_group", shard_group_json(settings)},
          {"ranks", settings.ranks},
          {"seed", settings.seed},
          {"temperature", settings.temperature},
          {"top_k", settings.top_k},
          {"top_p", settings.top_p},
          {"prompt_tokens", generation.prompt},
          {"samples", samples},
          {"seconds", result.seconds},
          {"peak_bytes", result.peak_bytes},
          {"planned_peak_bytes", planned}};
}

}  // namespace

void sample(const Settings& settings) {
  if (settings.init.empty() && !settings.hub) {
    throw ConfigError(
        "no weights to sample from; give --init PATH (tessera train --checkpoint DIR "
        "writes DIR/model.safetensors)");
  }
  const nn::Generation generation =
      in_turn([&] { return generation_of(settings, settings.named_model().config); });
  const Job job = prepare(settings, {settings.sharded.strategy}, Use::sampling);
  const SampleResult result = run_sampling(job, generation);
  if (!has_rank0(job.settings)) { return; }
  fmt::print("{}", text_of(job, generation, result));
  if (!settings.json.empty()) {
    write_output(settings.json, json_text(json_of(job, generation, result), 2) + "\n");
  }
  require_as_planned(job, settings.sharded.strategy, result.plannable);
}

}  // namespace tessera::tools
