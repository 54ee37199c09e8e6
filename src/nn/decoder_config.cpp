#include "tessera/nn/decoder_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"

namespace tessera::nn {
namespace {

struct Preset {
  std::string_view name;
  DecoderConfig config;
};

/// The parts that Llama introduced, with sizes as published in its config.json.
constexpr DecoderConfig llama(DecoderConfig sizes) {
  sizes.norm = NormKind::rms_norm;
  sizes.positions = PositionKind::rotary;
  sizes.mlp = MLPKind::swiglu;
  sizes.qkv_bias = sizes.output_bias = sizes.mlp_bias = false;
  sizes.tied_head = false;
  return sizes;
}

constexpr DecoderConfig llama3(DecoderConfig sizes) {
  sizes.vocab = 128'256;
  sizes.seq = 8192;
  sizes.kv_heads = 8;
  sizes.rotary_base = 500'000.0;
  return llama(sizes);
}

constexpr DecoderConfig mistral(DecoderConfig sizes) {
  sizes.kv_heads = 8;
  sizes.window = 4096;
  return llama(sizes);
}

constexpr DecoderConfig qwen3(DecoderConfig sizes, bool tied_head) {
  sizes.vocab = 151'936;
  sizes.seq = 40'960;
  sizes.kv_heads = 8;
  sizes.head_elems = 128;
  sizes.rotary_base = 1e6;
  sizes.norm_eps = 1e-6F;
  sizes.head_norms = true;
  sizes = llama(sizes);
  sizes.tied_head = tied_head;
  return sizes;
}

// GPT-2 (Radford et al. 2019), Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral 7B
// v0.1 (Jiang et al. 2023), Qwen 3 (Yang et al. 2025).
constexpr std::array kPresets{
    Preset{"gpt-nano", {4, 128, 4, 256, 128}},
    Preset{"gpt2", {12, 768, 12, 50257, 1024}},
    Preset{"gpt2-medium", {24, 1024, 16, 50257, 1024}},
    Preset{"gpt2-large", {36, 1280, 20, 50257, 1024}},
    Preset{"gpt2-xl", {48, 1600, 25, 50257, 1024}},
    Preset{"llama2-7b", llama({.layers = 32,
                               .hidden = 4096,
                               .heads = 32,
                               .vocab = 32000,
                               .seq = 4096,
                               .wide = 11008})},
    Preset{"llama3-8b", llama3({.layers = 32, .hidden = 4096, .heads = 32, .wide = 14336})},
    Preset{"llama3-70b", llama3({.layers = 80, .hidden = 8192, .heads = 64, .wide = 28672})},
    Preset{"mistral-7b", mistral({.layers = 32,
                                  .hidden = 4096,
                                  .heads = 32,
                                  .vocab = 32000,
                                  .seq = 32768,
                                  .wide = 14336})},
    Preset{"qwen3-0.6b", qwen3({.layers = 28, .hidden = 1024, .heads = 16, .wide = 3072}, true)},
    Preset{"qwen3-1.7b", qwen3({.layers = 28, .hidden = 2048, .heads = 16, .wide = 6144}, true)},
    Preset{"qwen3-4b", qwen3({.layers = 36, .hidden = 2560, .heads = 32, .wide = 9728}, true)},
    Preset{"qwen3-8b", qwen3({.layers = 36, .hidden = 4096, .heads = 32, .wide = 12288}, false)},
    Preset{"qwen3-14b", qwen3({.layers = 40, .hidden = 5120, .heads = 40, .wide = 17408}, false)},
    Preset{"qwen3-32b", qwen3({.layers = 64, .hidden = 5120, .heads = 64, .wide = 25600}, false)},
};

struct Limit {
  std::string_view what;
  std::int64_t value;
  std::int64_t most;
};

// Together they keep parameter_elems() below 2^63.
void check(const Limit& limit) {
  if (limit.value >= 1 && limit.value <= limit.most) { return; }
  throw ConfigError(
      fmt::format("{} is {}: give a number from 1 to {}", limit.what, limit.value, limit.most));
}

template <class Kind>
void check_kind(std::string_view what, Kind value, Kind last) {
  if (value >= Kind{} && value <= last) { return; }
  throw ConfigError(fmt::format("{} is {}: give one of its enumerators, 0 to {}", what,
                                static_cast<int>(value), static_cast<int>(last)));
}

}  // namespace

DecoderConfig DecoderConfig::preset(std::string_view name) {
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == kPresets.end()) {
    throw ConfigError(fmt::format("the model \"{}\" does not exist: choose one of {}", name,
                                  fmt::join(preset_names(), ", ")));
  }
  return found->config;
}

const std::vector<std::string_view>& DecoderConfig::preset_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Preset& preset : kPresets) { all.push_back(preset.name); }
    return all;
  }();
  return names;
}

void DecoderConfig::validate() const {
  constexpr std::int64_t kWidest = std::int64_t{1} << 20;
  check({"layers", layers, std::int64_t{1} << 16});
  check({"hidden", hidden, kWidest});
  check({"heads", heads, kWidest});
  check({"vocab", vocab, std::numeric_limits<std::int32_t>::max()});
  check({"seq", seq, std::int64_t{1} << 30});
  if (head_elems == 0 && hidden % heads != 0) {
    throw ConfigError(
        fmt::format("{} heads do not divide a hidden size of {}: each head takes hidden / heads "
                    "values; make hidden a multiple of {}, for example {}",
                    heads, hidden, heads, (hidden / heads + 1) * heads));
  }
  check({"head_elems", head_elems == 0 ? head_size() : head_elems, kWidest});
  check({"heads * head_elems", heads * head_size(), kWidest});
  check({"wide", wide == 0 ? mlp_elems() : wide, 4 * kWidest});
  check({"kv_heads", kv_heads == 0 ? heads : kv_heads, heads});
  if (heads % key_heads() != 0) {
    throw ConfigError(fmt::format("{} heads of keys do not divide {} query heads: give a divisor",
                                  key_heads(), heads));
  }
  validate_parts();
}

void DecoderConfig::validate_parts() const {
  check_kind("norm", norm, NormKind::rms_norm);
  check_kind("positions", positions, PositionKind::rotary);
  check_kind("mlp", mlp, MLPKind::geglu);
  check_kind("rotary_pairs", rotary_pairs, kernels::RotaryPairs::neighbours);
  if (norm == NormKind::layer_norm && norm_eps != 1e-5F) {
    throw ConfigError(fmt::format(
        "norm_eps is {}: layer norms add 1e-5; leave it out, or take RMSNorm", norm_eps));
  }
  if (!(norm_eps >= 0.0F && std::isfinite(norm_eps))) {
    throw ConfigError(fmt::format("norm_eps is {}: give a small number, such as 1e-5", norm_eps));
  }
  if (!(attention_scale >= 0.0F && std::isfinite(attention_scale))) {
    throw ConfigError(
        fmt::format("attention_scale is {}: give a number above 0, or 0 for 1 / sqrt({})",
                    attention_scale, head_size()));
  }
  if (window < 0 || first_window_layer < 0) {
    throw ConfigError(fmt::format(
        "a window of {} tokens from layer {} on: give numbers of at least 0 (0 tokens: no window)",
        window, first_window_layer));
  }
  validate_rotation();
}

void DecoderConfig::validate_rotation() const {
  const DecoderConfig plain;
  if (positions != PositionKind::rotary) {
    if (rotary_elems == plain.rotary_elems && rotary_base == plain.rotary_base &&
        rotary_pairs == plain.rotary_pairs && rotary_scaling == plain.rotary_scaling) {
      return;
    }
    throw ConfigError(
        "rotary_elems, rotary_base, rotary_pairs and rotary_scaling have no effect with learned "
        "positions: leave them out, or make `positions` rotary");
  }
  if (rotated_elems() % 2 != 0 || rotary_elems < 0 || rotated_elems() > head_size()) {
    throw ConfigError(fmt::format(
        "rotary_elems: {} values of a head of {} cannot be rotated: give an even number up to it",
        rotary_elems == 0 ? head_size() : rotary_elems, head_size()));
  }
  if (!(rotary_base >= 1.0 && std::isfinite(rotary_base))) {
    throw ConfigError(
        fmt::format("rotary_base is {}: give a number of at least 1, such as 10000", rotary_base));
  }
  const kernels::RotaryScaling& scaling = rotary_scaling;
  if (scaling == plain.rotary_scaling) { return; }
  const bool in_order = scaling.low_frequency_factor > 0.0 &&
                        scaling.high_frequency_factor > scaling.low_frequency_factor &&
                        std::isfinite(scaling.high_frequency_factor);
  if (!(scaling.factor > 0.0 && std::isfinite(scaling.factor)) || !in_order ||
      scaling.original_positions < 1) {
    throw ConfigError(
        fmt::format("rotary scaling by {} with frequency factors {} and {} from {} positions on: "
                    "all must be above 0, and the low factor below the high one",
                    scaling.factor, scaling.low_frequency_factor, scaling.high_frequency_factor,
                    scaling.original_positions));
  }
}

std::int64_t DecoderConfig::parameter_elems() const noexcept {
  const auto with_bias = [](std::int64_t in, std::int64_t out, bool bias) {
    return (in + (bias ? 1 : 0)) * out;
  };
  const std::int64_t head = head_size();
  const std::int64_t norms = (norm == NormKind::layer_norm ? 2 : 1) * hidden;
  const std::int64_t attention = with_bias(hidden, (heads + 2 * key_heads()) * head, qkv_bias) +
                                 with_bias(heads * head, hidden, output_bias) +
                                 (head_norms ? 2 * head : 0);
  const std::int64_t of_mlp = with_bias(hidden, (gated() ? 2 : 1) * mlp_elems(), mlp_bias) +
                              with_bias(mlp_elems(), hidden, mlp_bias);
  const std::int64_t tables =
      (tied_head ? 1 : 2) * vocab + (positions == PositionKind::learned ? seq : 0);
  return tables * hidden + layers * (attention + of_mlp + 2 * norms) + norms;
}

}  // namespace tessera::nn
