#include "tools/scale/family.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.hpp"
#include "tools/options/option_values.hpp"

namespace tessera::tools {
namespace {

constexpr std::int64_t kMostFamilyLayers = 1024;
constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;  // the limit of DecoderConfig
// Half of ShardedModel's limit, which includes padding.
constexpr std::int64_t kMostFamilyParameters = std::int64_t{1} << 49;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBudget = 24 * 1024 * kMiB;

struct KnownFamily {
  Family family;
  std::size_t measured_budget;
};

const std::vector<KnownFamily>& families() {
  static const std::vector<KnownFamily> all = {
      {{"gpt2", 64, 64, 50257, 1024}, 1024 * kMiB},
      {{"gpt-nano", 32, 32, 256, 128}, 64 * kMiB},
  };
  return all;
}

const KnownFamily& known(const Settings& settings) {
  // A model with a vocabulary of 50257 does not run in seconds.
  const std::string name = settings.model.value_or(settings.measure ? "gpt-nano" : "gpt2");
  const auto found = std::ranges::find(
      families(), name, [](const KnownFamily& k) -> const auto& { return k.family.name; });
  if (found != families().end()) { return *found; }
  const auto& presets = nn::DecoderConfig::preset_names();
  const bool model = std::ranges::find(presets, name) != presets.end();
  const std::string meant = model ? "gpt2" : nearest(name, family_names());
  throw ConfigError(
      fmt::format("--model {}: {}; {}", name,
                  model ? "a model, not a family of them" : "no family is so called",
                  meant.empty() ? "use gpt2 or gpt-nano" : fmt::format("did you mean {}?", meant)));
}

bool possible(const nn::DecoderConfig& config) {
  return config.hidden <= kMostHidden && config.parameter_elems() <= kMostFamilyParameters;
}

std::string times(std::int64_t factor) {
  return factor == 1 ? "k" : fmt::format("{} k", factor);
}

}  // namespace

nn::DecoderConfig Family::member(std::int64_t index) const {
  const std::int64_t heads =
      std::max<std::int64_t>(1, (2 * aspect * index + head_size) / 2 / head_size);
  return {index, head_size * heads, heads, vocab, seq};
}

std::int64_t Family::last() const {
  std::int64_t index = kMostFamilyLayers;
  while (index > 1 && !possible(member(index))) { --index; }
  return index;
}

std::string Family::rule() const {
  if (aspect % head_size == 0) {
    return fmt::format("layers = k, hidden = {}, heads = {}", times(aspect),
                       times(aspect / head_size));
  }
  return fmt::format("layers = k, hidden = {} rounded to a multiple of {}, heads = hidden / {}",
                     times(aspect), head_size, head_size);
}

const std::vector<std::string>& family_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const KnownFamily& k : families()) { all.push_back(k.family.name); }
    return all;
  }();
  return names;
}

Family family_of(const Settings& settings) {
  Family family = known(settings).family;
  family.aspect = settings.aspect.value_or(family.aspect);
  family.vocab = settings.vocab.value_or(family.vocab);
  family.seq = settings.seq.value_or(family.seq);
  family.member(1).validate();
  return family;
}

std::size_t scale_budget(const Settings& settings) {
  return settings.world.budget_bytes.value_or(settings.measure ? known(settings).measured_budget
                                                               : kBudget);
}

}  // namespace tessera::tools
