#include "tools/options/settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/ranks.hpp"

namespace tessera::tools {

bool Settings::has(std::string_view option) const {
  return std::find(given.begin(), given.end(), option) != given.end();
}

bool Settings::changes(std::string_view option) const {
  return std::find(changed.begin(), changed.end(), option) != changed.end();
}

NamedModel Settings::published_model(std::string_view otherwise) const {
  const std::string name = model.value_or(std::string{otherwise});
  if (hub) { return {name, hub->decoder}; }
  if (name.find('/') != std::string::npos) {
    throw ConfigError(fmt::format(
        "--model {}: there is no such folder; give one with config.json, or a model's name", name));
  }
  return {name, nn::DecoderConfig::preset(name)};
}

namespace {

/// The preset, or the model of the hub's folder, with sequences as short as --seq.
NamedModel model_of_name(const Settings& settings) {
  NamedModel found = settings.published_model("gpt-nano");
  if (!settings.seq) { return found; }
  if (*settings.seq > found.config.seq) {
    throw ConfigError(fmt::format("--seq {}: {} has {} positions; give a shorter one",
                                  *settings.seq, found.name, found.config.seq));
  }
  found.config.seq = *settings.seq;
  found.config.validate();
  return found;
}

}  // namespace

NamedModel Settings::named_model() const {
  const bool sizes = layers || hidden || heads || vocab;
  if (model && sizes) {
    throw ConfigError(
        "--model cannot be combined with --layers, --hidden, --heads or --vocab; give the name or "
        "the sizes");
  }
  if (model || !(sizes || seq)) { return model_of_name(*this); }
  nn::DecoderConfig config;
  config.layers = layers.value_or(config.layers);
  config.hidden = hidden.value_or(config.hidden);
  config.heads = heads.value_or(config.heads);
  config.vocab = vocab.value_or(config.vocab);
  config.seq = seq.value_or(config.seq);
  config.validate();
  return {"custom", config};
}

Schedule Settings::schedule() const {
  if (min_lr && lr_schedule == ScheduleShape::constant) {
    throw ConfigError("--min-lr has no effect with --lr-schedule constant; leave one of them out");
  }
  const float end = min_lr.value_or(lr * 0.1F);
  if (end > lr) {
    throw ConfigError(fmt::format("--min-lr {} is above --lr {}; make it smaller", end, lr));
  }
  return {lr_schedule, lr, end, warmup, std::max<std::int64_t>(steps, 1)};
}

std::int64_t Settings::tokens_per_step() const {
  return data_ranks(*this) * batch * sharded.accumulate * named_model().config.seq;
}

namespace {

/// The dtype in which gradients are reduced: the narrower of two.
DType travelling(const Settings& settings) {
  const bool rounds = size_of(settings.sharded.reduce) < size_of(settings.sharded.gradient);
  return rounds ? settings.sharded.reduce : settings.sharded.gradient;
}

}  // namespace

std::string_view comm_name(const Settings& settings) {
  if (settings.comm == CommChoice::mpi) { return "mpi"; }
  return settings.comm == CommChoice::nccl ? "nccl" : "local";
}

std::string describe_ranks(const Settings& settings) {
  std::vector<std::string_view> words;
  if (settings.world.device != DeviceKind::cpu) {
    words.push_back(to_string(settings.world.device));
  }
  if (comm_name(settings) != "local") { words.push_back(comm_name(settings)); }
  if (settings.graph) { words.push_back("graph"); }
  if (settings.world.deterministic) { words.push_back("deterministic"); }
  if (!settings.world.products.empty()) { words.push_back("recorded products"); }
  if (settings.world.tuning.spared_multiprocessors > 0) {
    words.push_back("multiprocessors spared");
  }
  if (settings.world.nondeterministic_attention) { words.push_back("nondeterministic attention"); }
  return words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", "));
}

std::string_view offload_name(const Settings& settings) {
  const bool activations = settings.boundaries == nn::Boundaries::host;
  switch (settings.sharded.offload) {
    case Offload::optimizer:
      return activations ? "optimizer,activations" : "optimizer";
    case Offload::state:
      return activations ? "state,activations" : "state";
    case Offload::none:
      break;
  }
  return activations ? "activations" : "none";
}

std::string offload_words(const Settings& settings) {
  if (offload_name(settings) == "none") { return ""; }
  std::string words = fmt::format(" --offload {}", offload_name(settings));
  if (settings.sharded.offload_keep > 0) {
    words += fmt::format(" --offload-keep {}", settings.sharded.offload_keep);
  }
  return words;
}

std::string describe_forward(const Settings& settings) {
  std::string text;
  if (settings.norm_dtype) { text += fmt::format(", norms {}", to_string(*settings.norm_dtype)); }
  const std::string recompute = settings.recompute.describe();
  if (recompute != "none") { text += ", recompute " + recompute; }
  if (settings.head_rows > 0) { text += fmt::format(", head rows {}", settings.head_rows); }
  if (offload_name(settings) != "none") {
    text += fmt::format(", offload {}", offload_name(settings));
  }
  if (settings.sharded.offload_keep > 0) {
    text += fmt::format(" (but for {:g} %)", 100 * settings.sharded.offload_keep);
  }
  if (settings.dropout > 0) { text += fmt::format(", dropout {}", settings.dropout); }
  return text;
}

std::string describe_precision(const Settings& settings) {
  const bool plain = settings.sharded.compute == DType::fp32 &&
                     settings.sharded.gradient == DType::fp32 &&
                     settings.sharded.reduce == DType::fp32;
  return plain
             ? "fp32"
             : fmt::format("{} (gradients {}, reduced in {})", to_string(settings.sharded.compute),
                           to_string(settings.sharded.gradient), to_string(travelling(settings)));
}

void check_reduce_dtype(const Settings& settings) {
  if (!settings.has("--reduce-dtype") || travelling(settings) == settings.sharded.reduce) {
    return;
  }
  throw ConfigError(
      fmt::format("--reduce-dtype {} has no effect: gradients of {} travel as they are; leave it "
                  "out, or use --gradient-dtype fp32",
                  to_string(settings.sharded.reduce), to_string(settings.sharded.gradient)));
}

void check_host_threads(const Settings& settings) {
  if (!settings.has("--host-threads") || settings.sharded.offload == Offload::optimizer) { return; }
  throw ConfigError(
      "--host-threads has no effect: the host updates nothing; leave it out, or use --offload "
      "optimizer");
}

void check_device(const Settings& settings) {
  const bool cuda = settings.world.device == DeviceKind::cuda;
  if (settings.comm == CommChoice::mpi && cuda) {
    throw ConfigError(
        "--comm mpi: processes on CUDA devices are joined by NCCL; leave --comm out, or use nccl");
  }
  if (settings.comm == CommChoice::nccl && !cuda) {
    throw ConfigError(
        "--comm nccl: NCCL moves memory of CUDA devices, and these ranks are on the cpu; use the "
        "device cuda, or --comm local or mpi");
  }
}

void check_planned(const Settings& settings) {
  if (settings.has("--device") && settings.has("--for")) {
    throw ConfigError(
        "--device and --for cannot be combined; give only --for, the device to plan for");
  }
  check_device(settings);
  std::vector<int> counts = settings.rank_counts;
  counts.push_back(settings.ranks);
  const int ranks = std::ranges::max(counts);
  if (settings.comm == CommChoice::local && ranks > kMostThreadRanks) {
    throw ConfigError(fmt::format(
        "--comm local: one process can have at most {} ranks, not {}; leave it out, or "
        "use --comm {}",
        kMostThreadRanks, ranks, settings.world.device == DeviceKind::cuda ? "nccl" : "mpi"));
  }
  check_reduce_dtype(settings);
  check_mesh_options(settings);
}

}  // namespace tessera::tools
