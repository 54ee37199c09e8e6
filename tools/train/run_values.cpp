#include "tools/train/run_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <variant>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/data/loader.hpp"
#include "tessera/nn/hub.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/model_words.hpp"
#include "tools/options/optimizer.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEpoch = "data.epoch";
constexpr const char* kWindows = "data.windows_taken";
constexpr const char* kGlobalBatch = "data.global_batch";
constexpr const char* kContent = "data.content";
constexpr const char* kName = "data.name";
constexpr const char* kMoments = "moments";
constexpr const char* kMesh = "mesh";
constexpr const char* kParts = "model.parts";

/// An option that changes what a run computes.
struct RunOption {
  std::string_view name;   ///< as it is typed
  std::string value;       ///< in this run
  std::string_view other;  ///< an option that also changes it when typed; may be empty
};

std::string key_of(const RunOption& option) {
  return std::string{option.name.substr(2)};
}

/// The model in the hub's format; empty for sizes that no family there has.
std::string hub_text_of(const Job& job) {
  try {
    nn::HubConfig config = job.settings.hub ? *job.settings.hub : nn::hub_config(job.model.config);
    config.decoder = job.model.config;
    return nn::hub_config_text(config);
  } catch (const ConfigError&) { return {}; }
}

std::vector<RunOption> model_options_of(const Job& job) {
  const nn::DecoderConfig& config = job.model.config;
  return {{"--layers", std::to_string(config.layers), ""},
          {"--hidden", std::to_string(config.hidden), ""},
          {"--heads", std::to_string(config.heads), ""},
          {"--vocab", std::to_string(config.vocab), ""},
          {"--seq", std::to_string(config.seq), ""},
          {"--optimizer", std::string{to_string(job.settings.optimizer)}, ""}};
}

void add_schedule(const Job& job, std::vector<RunOption>& options) {
  const Settings& settings = job.settings;
  const bool cosine = settings.lr_schedule == ScheduleShape::cosine;
  options.push_back({"--lr", fmt::format("{}", settings.lr), ""});
  options.push_back({"--warmup", std::to_string(settings.warmup), ""});
  options.push_back({"--lr-schedule", cosine ? "cosine" : "constant", ""});
  if (!cosine) { return; }
  options.push_back({"--min-lr", fmt::format("{}", job.schedule.min_lr), "--lr"});
  options.push_back({"--steps", std::to_string(settings.steps), ""});
}

void add_optimizer(const Settings& settings, std::vector<RunOption>& options) {
  const auto add = [&](std::string_view name, float value) {
    options.push_back({name, fmt::format("{}", value), ""});
  };
  std::visit(
      [&](const auto& rule) {
        if constexpr (requires { rule.beta1; }) { add("--beta1", rule.beta1); }
        if constexpr (requires { rule.beta2; }) { add("--beta2", rule.beta2); }
        if constexpr (requires { rule.eps; }) { add("--eps", rule.eps); }
        if constexpr (requires { rule.momentum; }) { add("--momentum", rule.momentum); }
        if constexpr (requires { rule.weight_decay; }) { add("--weight-decay", rule.weight_decay); }
      },
      optimizer_of(settings));
  add("--clip", settings.update.clip_norm);
}

std::string loss_scale_of(const Settings& settings) {
  const LossScaleMode mode = resolve(settings.sharded.loss_scaling.mode, settings.sharded.compute,
                                     settings.sharded.gradient);
  if (mode == LossScaleMode::fixed) {
    return fmt::format("{}", settings.sharded.loss_scaling.initial);
  }
  return mode == LossScaleMode::dynamic ? "dynamic" : "off";
}

void add_precision(const Settings& settings, std::vector<RunOption>& options) {
  const auto add = [&](std::string_view name, DType dtype, std::string_view other) {
    options.push_back({name, std::string{to_string(dtype)}, other});
  };
  add("--precision", settings.sharded.compute, "");
  add("--norm-dtype", settings.norm_dtype.value_or(settings.sharded.compute), "--precision");
  add("--gradient-dtype", settings.sharded.gradient, "");
  add("--reduce-dtype", settings.sharded.reduce, "");
  options.push_back({"--rounding", std::string{to_string(settings.update.rounding)}, ""});
  options.push_back({"--loss-scale", loss_scale_of(settings), "--precision"});
}

/// Options that may change between runs if they are typed.
std::vector<RunOption> training_options_of(const Job& job) {
  const Settings& settings = job.settings;
  std::vector<RunOption> options = {{"--seed", std::to_string(settings.seed), ""},
                                    {"--no-shuffle", settings.shuffle ? "not given" : "given", ""},
                                    {"--dropout", fmt::format("{}", settings.dropout), ""},
                                    {"--pack", job.pack, ""},
                                    {"--loss-mask", job.loss_mask, ""}};
  options.push_back(
      {"--accumulate-mode", std::string{to_string(settings.sharded.accumulate_mode)}, ""});
  const auto given = [](bool is) { return std::string{is ? "given" : "not given"}; };
  options.push_back({"--head-rows", std::to_string(settings.head_rows), ""});
  options.push_back(
      {"--nondeterministic-attention", given(settings.world.nondeterministic_attention), ""});
  options.push_back({"--products", given(!settings.world.products.empty()), ""});
  options.push_back({"--spare-multiprocessors",
                     std::to_string(settings.world.tuning.spared_multiprocessors), ""});
  add_schedule(job, options);
  add_optimizer(settings, options);
  add_precision(settings, options);
  return options;
}

/// "--lr 0.001"; "--no-shuffle"; "no --no-shuffle".
std::string words(const RunOption& option, const std::string& value) {
  if (value == "given") { return std::string{option.name}; }
  if (value == "not given") { return fmt::format("no {}", option.name); }
  return fmt::format("{} {}", option.name, value);
}

/// An option, and its value in the checkpoint.
struct Difference {
  RunOption option;
  std::string saved;
};

std::vector<Difference> differences(const std::vector<RunOption>& options, const RunValues& saved) {
  std::vector<Difference> found;
  for (const RunOption& option : options) {
    const auto value = saved.find(key_of(option));
    if (value != saved.end() && value->second != option.value) {
      found.push_back({option, shown(value->second)});
    }
  }
  return found;
}

std::string words_of_run(const std::vector<Difference>& all) {
  std::vector<std::string> each;
  for (const Difference& one : all) { each.push_back(words(one.option, one.option.value)); }
  return fmt::format("{}", fmt::join(each, " "));
}

std::string words_of_checkpoint(const std::vector<Difference>& all) {
  std::vector<std::string> each;
  for (const Difference& one : all) { each.push_back(words(one.option, one.saved)); }
  return fmt::format("{}", fmt::join(each, " "));
}

std::string_view resume_option(const Settings& settings) {
  return settings.resume ? "--resume" : "--resume-from";
}

/// Checkpoints of a GPT-2 have no entry for its parts.
void require_same_parts(const Job& job, const RunValues& saved, const std::string& path) {
  const auto value = saved.find(kParts);
  const std::string there = value == saved.end() ? "" : shown(value->second);
  const std::string here = describe_parts(job.model.config);
  if (there == here) { return; }
  const auto words = [](const std::string& parts) {
    return parts.empty() ? std::string{"a GPT-2"} : "a model with " + parts;
  };
  throw ConfigError(
      fmt::format("{}: {} is of {}, and this run trains {}; give the --model that it "
                  "was saved with",
                  resume_option(job.settings), path, words(there), words(here)));
}

void require_same_model(const Job& job, const RunValues& saved, const std::string& path) {
  require_same_parts(job, saved, path);
  const std::vector<Difference> other = differences(model_options_of(job), saved);
  if (other.empty()) { return; }
  throw ConfigError(fmt::format(
      "{}: {} has another model or optimizer: {} there, {} in this run; give the same as there",
      resume_option(job.settings), path, words_of_checkpoint(other), words_of_run(other)));
}

/// Returns whether moments are converted.
bool converts_moments(const Job& job, const RunValues& saved, const std::string& path) {
  const auto value = saved.find(kMoments);
  const std::string_view own = to_string(job.settings.update.moments);
  if (value == saved.end() || value->second == own) { return false; }
  if (job.settings.convert_moments) { return true; }
  throw ConfigError(fmt::format(
      "{}: {} has moments in {}, and this run would have them in {}; give --moments "
      "{}, or --resume-moments convert",
      resume_option(job.settings), path, shown(value->second), own, shown(value->second)));
}

bool was_typed(const Settings& settings, const RunOption& option) {
  return settings.has(option.name) || (!option.other.empty() && settings.has(option.other));
}

void require_typed(const Settings& settings, const std::vector<Difference>& all,
                   const std::string& path) {
  std::vector<Difference> silent;
  for (const Difference& one : all) {
    if (!was_typed(settings, one.option)) { silent.push_back(one); }
  }
  if (silent.empty()) { return; }
  throw ConfigError(fmt::format(
      "{}: {} was trained with {}, but this run would use {}; give the former, or type the latter "
      "to change it on purpose",
      resume_option(settings), path, words_of_checkpoint(silent), words_of_run(silent)));
}

/// The name of the data as a checkpoint stores it. Bytes that are not UTF-8 are written as \xFF.
std::string data_name(const Settings& settings) {
  const std::string& name = settings.data.empty() ? settings.tokens : settings.data;
  try {
    (void)nlohmann::json(name).dump();
    return name;
  } catch (const nlohmann::json::type_error&) {
    std::string escaped;
    for (const char c : name) {
      escaped += c >= ' ' && c <= '~' ? std::string{c}
                                      : fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    }
    return escaped;
  }
}

bool same_place(const std::string& name, const std::string& saved) {
  std::error_code failed;
  return name == saved || fs::equivalent(name, saved, failed);
}

bool has_other_data(const Job& job, const RunValues& saved, const std::string& path) {
  const auto content = saved.find(kContent);
  if (content == saved.end() || job.data_content.empty() || content->second == job.data_content) {
    return false;
  }
  const auto name = saved.find(kName);
  const std::string& now = job.settings.data.empty() ? job.settings.tokens : job.settings.data;
  if (name == saved.end() || !same_place(data_name(job.settings), name->second)) { return true; }
  throw ConfigError(fmt::format(
      "{}: {} has changed: {} was trained on {}, and it holds {} now; give the same "
      "data, or data under another name to start at its beginning",
      resume_option(job.settings), now, path, shown(content->second), job.data_content));
}

/// "--mesh shard=4 from now on, no --mesh before"; empty if nothing changes. A run with any mesh
/// can continue from any other.
std::string change_of_mesh(const Settings& settings, const RunValues& saved) {
  const auto value = saved.find(kMesh);
  const std::string before = value == saved.end() ? "" : shown(value->second);
  const std::string now = mesh_words(settings.sharded.mesh);
  const auto option = [](const std::string& mesh) {
    return mesh.empty() ? "no --mesh" : "--mesh " + mesh;
  };
  return now == before ? "" : fmt::format("{} from now on, {} before", option(now), option(before));
}

std::int64_t number_in(const RunValues& saved, const char* key, const std::string& path) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto value = saved.find(key);
  if (value == saved.end()) {
    throw ConfigError(
        fmt::format("{}: this checkpoint was not written by tessera train: it has no '{}'; use "
                    "only its weights, with --init {}",
                    path, key, path));
  }
  try {
    return parse_whole(value->second, 0, kMost);
  } catch (const ConfigError& error) {
    throw FormatError(fmt::format("{}: '{}': {}", path, key, error.what()));
  }
}

std::int64_t global_batch_of(const Job& job) {
  return data_ranks(job.settings) * job.settings.batch * job.settings.sharded.accumulate;
}

std::int64_t steps_per_epoch(const Job& job) {
  return window_count(*job.source, job.model.config.seq) / global_batch_of(job);
}

}  // namespace

DataPosition position_after(const Job& job, std::int64_t data_steps) {
  DataPosition position{.global_batch = global_batch_of(job)};
  if (!job.source) { return position; }
  const std::int64_t in_epoch = steps_per_epoch(job);
  position.epoch = data_steps / in_epoch;
  position.windows = data_steps % in_epoch * position.global_batch;
  return position;
}

std::int64_t data_steps_before(const Job& job, const DataPosition& position,
                               const std::string& path) {
  if (!job.source) { return 0; }
  const std::int64_t in_epoch = steps_per_epoch(job);
  const std::int64_t batch = global_batch_of(job);
  const std::int64_t whole = position.windows / batch + (position.windows % batch == 0 ? 0 : 1);
  if (position.epoch >= std::numeric_limits<std::int64_t>::max() / in_epoch - 1) {
    throw FormatError(
        fmt::format("{}: '{}' is {}, more than can be counted", path, kEpoch, position.epoch));
  }
  return position.epoch * in_epoch + std::min(whole, in_epoch);
}

RunValues run_values(const Job& job, std::int64_t data_steps) {
  RunValues values;
  for (const auto& options : {model_options_of(job), training_options_of(job)}) {
    for (const RunOption& option : options) { values[key_of(option)] = option.value; }
  }
  if (const std::string text = hub_text_of(job); !text.empty()) {
    values[std::string{kHubConfig}] = text;
  }
  if (const std::string parts = describe_parts(job.model.config); !parts.empty()) {
    values[kParts] = parts;
  }
  values[kMoments] = to_string(job.settings.update.moments);
  if (!job.settings.sharded.mesh.empty()) { values[kMesh] = mesh_words(job.settings.sharded.mesh); }
  const DataPosition position = position_after(job, data_steps);
  values[kEpoch] = std::to_string(position.epoch);
  values[kWindows] = std::to_string(position.windows);
  values[kGlobalBatch] = std::to_string(position.global_batch);
  if (job.source) {
    values[kContent] = job.data_content;
    values[kName] = data_name(job.settings);
  }
  return values;
}

DataPosition position_in(const RunValues& saved, const std::string& path) {
  return {number_in(saved, kEpoch, path), number_in(saved, kWindows, path),
          number_in(saved, kGlobalBatch, path)};
}

Changes changes_since(const Job& job, const RunValues& saved, const std::string& path) {
  require_same_model(job, saved, path);
  const std::vector<Difference> all = differences(training_options_of(job), saved);
  require_typed(job.settings, all, path);
  const bool converts = converts_moments(job, saved, path);
  Changes changes{.other_data = has_other_data(job, saved, path)};
  for (const Difference& one : all) {
    changes.options.push_back(fmt::format("{} from now on, {} before",
                                          words(one.option, one.option.value),
                                          words(one.option, one.saved)));
  }
  if (const std::string mesh = change_of_mesh(job.settings, saved); !mesh.empty()) {
    changes.options.push_back(mesh);
  }
  if (converts) {
    changes.options.push_back(fmt::format("moments are converted from {} to {}", saved.at(kMoments),
                                          to_string(job.settings.update.moments)));
  }
  return changes;
}

}  // namespace tessera::tools
