#include "tools/plan/mesh_search.hpp"

#include <algorithm>
#include <tuple>

namespace tessera::tools {
namespace {

constexpr std::int64_t kMostSamples = 1'000'000;  // the limit of --batch

/// The numbers of parts that a layer, and a model, can be cut into.
struct Parts {
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
};

Parts most_parts(const Settings& settings) {
  if (settings.params) { return {*settings.params, *settings.params}; }
  const nn::DecoderConfig config = settings.named_model().config;
  return {config.key_heads(), config.layers};
}

Settings split(const Settings& settings, int tensor, int pipe) {
  Settings split = settings;
  const int parts = tensor * pipe;
  // Each data rank replaces `parts` ranks.
  if (!settings.params) { split.batch = settings.batch * parts; }
  const auto add = [&](const char* name, int size) {
    if (size > 1) { split.sharded.mesh.push_back({name, size}); }
  };
  add("pipe", pipe);
  add("shard", settings.ranks / parts);
  add("tensor", tensor);
  return split;
}

}  // namespace

std::vector<Settings> split_settings(const Settings& settings, int machine_ranks) {
  if (!settings.sharded.mesh.empty() || settings.has("--shard-group")) { return {}; }
  const Parts most = most_parts(settings);
  std::vector<std::tuple<int, int, int>> sizes;  // parts, pipe, tensor
  for (int tensor = 1; tensor <= std::min(machine_ranks, settings.ranks); ++tensor) {
    const bool in_machine = settings.ranks <= machine_ranks || machine_ranks % tensor == 0;
    if (!in_machine || settings.ranks % tensor != 0 || tensor > most.tensor) { continue; }
    for (int pipe = 1; pipe <= settings.ranks / tensor && pipe <= most.pipe; ++pipe) {
      const int parts = tensor * pipe;
      const bool possible = settings.ranks % parts == 0 && settings.batch * parts <= kMostSamples;
      if (parts > 1 && possible) { sizes.emplace_back(parts, pipe, tensor); }
    }
  }
  std::ranges::sort(sizes);
  std::vector<Settings> all;
  for (const auto& [parts, pipe, tensor] : sizes) { all.push_back(split(settings, tensor, pipe)); }
  return all;
}

}  // namespace tessera::tools
