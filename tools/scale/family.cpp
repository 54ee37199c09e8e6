#include "tools/scale/family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tessera::tools {
namespace {

constexpr std::int64_t kMostFamilyLayers = 1024;
constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;  // the limits of DecoderConfig
constexpr std::int64_t kMostWide = 4 * kMostHidden;
// Half of ShardedModel's limit, which includes padding.
constexpr std::int64_t kMostFamilyParameters = std::int64_t{1} << 49;

constexpr std::int64_t kPreferredMultiple = 64;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBudget = 24 * 1024 * kMiB;
constexpr std::size_t kMeasuredBudget = 1024 * kMiB;
constexpr std::size_t kMeasuredBudgetOfNano = 64 * kMiB;

/// The model that a family is made from, if none is named. One with a vocabulary of 50257 does not
/// run in seconds.
std::string_view usual_model(const Settings& settings) {
  return settings.measure ? "gpt-nano" : "gpt2";
}

/// numerator / denominator.
struct Ratio {
  std::int64_t numerator = 1;
  std::int64_t denominator = 1;

  [[nodiscard]] bool whole() const { return numerator % denominator == 0; }
  /// `value` times the ratio, rounded to the nearest multiple of `unit`, halves up.
  [[nodiscard]] std::int64_t of(std::int64_t value, std::int64_t unit = 1) const {
    const std::int64_t divisor = denominator * unit;
    return (2 * numerator * value + divisor) / (2 * divisor) * unit;
  }
};

/// In lowest terms.
Ratio operator*(std::int64_t factor, const Ratio& ratio) {
  const std::int64_t numerator = factor * ratio.numerator;
  const std::int64_t common = std::gcd(numerator, ratio.denominator);
  return {numerator / common, ratio.denominator / common};
}

/// "k", "64 k", "k/4", "512/5 k", for a ratio in lowest terms.
std::string times(const Ratio& ratio, std::string_view what) {
  const auto [numerator, denominator] = ratio;
  if (denominator == 1) {
    return numerator == 1 ? std::string{what} : fmt::format("{} {}", numerator, what);
  }
  return numerator == 1 ? fmt::format("{}/{}", what, denominator)
                        : fmt::format("{}/{} {}", numerator, denominator, what);
}

/// What is multiplied by k to get a size's share of the published one.
Ratio growth(const Family& family) {
  return family.aspect ? Ratio{*family.aspect, family.published.hidden}
                       : Ratio{1, family.published.layers};
}

bool hidden_is_of_heads(const nn::DecoderConfig& config) {
  return config.heads * config.head_size() == config.hidden;
}

std::int64_t hidden_unit(const nn::DecoderConfig& published) {
  return hidden_is_of_heads(published) ? published.head_size()
                                       : std::gcd(published.hidden, kPreferredMultiple);
}

std::int64_t wide_unit(const nn::DecoderConfig& published) {
  return std::gcd(published.wide, kPreferredMultiple);
}

/// The heads of the published model for each of its key heads.
std::int64_t queries_per_key(const nn::DecoderConfig& published) {
  return published.heads / published.key_heads();
}

/// Whether hidden and heads are rounded alike, so that heads need no rule of their own.
bool moves_by_heads(const nn::DecoderConfig& published) {
  return hidden_is_of_heads(published) && queries_per_key(published) == 1;
}

bool possible(const nn::DecoderConfig& config) {
  return config.hidden <= kMostHidden && config.heads * config.head_size() <= kMostHidden &&
         config.mlp_elems() <= kMostWide && config.parameter_elems() <= kMostFamilyParameters;
}

std::string rounded_to(std::int64_t unit) {
  return fmt::format(" rounded to a multiple of {}", unit);
}

std::string hidden_rule(const Family& family) {
  const std::int64_t unit = hidden_unit(family.published);
  const Ratio per_layer = family.published.hidden * growth(family);
  const bool exact = per_layer.numerator % (per_layer.denominator * unit) == 0;
  return fmt::format(", hidden = {}{}", times(per_layer, "k"), exact ? "" : rounded_to(unit));
}

std::string heads_rule(const Family& family) {
  const nn::DecoderConfig& published = family.published;
  const Ratio per_layer = published.key_heads() * growth(family);
  if (moves_by_heads(published)) {
    return ", heads = " + (per_layer.whole() ? times(per_layer, "k")
                                             : fmt::format("hidden / {}", published.head_size()));
  }
  const std::int64_t group = queries_per_key(published);
  return fmt::format(", {}heads = {}{}{}, head size {}", group == 1 ? "" : "key ",
                     times(per_layer, "k"), per_layer.whole() ? "" : " rounded to at least 1",
                     group == 1 ? "" : fmt::format(", query heads = {} times as many", group),
                     published.head_size());
}

std::string mlp_rule(const nn::DecoderConfig& published) {
  if (published.wide == 0) { return ""; }
  const std::int64_t unit = wide_unit(published);
  const Ratio of_hidden = published.wide * Ratio{1, published.hidden};
  const std::int64_t of_step = of_hidden.numerator * hidden_unit(published);
  const bool exact = of_step % (of_hidden.denominator * unit) == 0;
  return fmt::format(", MLP = {}{}", times(of_hidden, "hidden"), exact ? "" : rounded_to(unit));
}

std::string window_rule(const nn::DecoderConfig& published) {
  if (published.window == 0 || published.first_window_layer == 0) { return ""; }
  const Ratio first = published.first_window_layer * Ratio{1, published.layers};
  return fmt::format(", windows from layer {}{} on", times(first, "k"),
                     first.whole() ? "" : " (rounded)");
}

}  // namespace

nn::DecoderConfig Family::member(std::int64_t index) const {
  const Ratio scale = growth(*this);
  nn::DecoderConfig config = published;
  config.layers = index;
  const std::int64_t unit = hidden_unit(published);
  config.hidden = std::max(unit, (published.hidden * scale).of(index, unit));
  const std::int64_t key_heads =
      std::max<std::int64_t>(1, (published.key_heads() * scale).of(index));
  config.heads = key_heads * queries_per_key(published);
  if (published.kv_heads > 0) { config.kv_heads = key_heads; }
  config.head_elems = published.head_size();
  if (hidden_is_of_heads(config)) { config.head_elems = published.head_elems; }
  if (published.wide > 0) {
    const Ratio of_hidden{published.wide, published.hidden};
    config.wide = std::max(wide_unit(published), of_hidden.of(config.hidden, wide_unit(published)));
  }
  config.first_window_layer = Ratio{published.first_window_layer, published.layers}.of(index);
  return config;
}

std::int64_t Family::last() const {
  std::int64_t index = kMostFamilyLayers;
  while (index > 1 && !possible(member(index))) { --index; }
  return index;
}

std::string Family::rule() const {
  return "layers = k" + hidden_rule(*this) + heads_rule(*this) + mlp_rule(published) +
         window_rule(published);
}

Family family_of(const Settings& settings) {
  const NamedModel model = settings.published_model(usual_model(settings));
  Family family{model.name, model.config, settings.aspect};
  family.published.vocab = settings.vocab.value_or(family.published.vocab);
  family.published.seq = settings.seq.value_or(family.published.seq);
  family.member(1).validate();
  return family;
}

std::size_t scale_budget(const Settings& settings) {
  const bool nano = settings.model.value_or(std::string{usual_model(settings)}) == "gpt-nano";
  const std::size_t measured = nano ? kMeasuredBudgetOfNano : kMeasuredBudget;
  return settings.world.budget_bytes.value_or(settings.measure ? measured : kBudget);
}

}  // namespace tessera::tools
