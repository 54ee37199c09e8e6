#include "tools/options/model_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace tessera::tools {
namespace {

std::string_view word_of(nn::MLPKind kind) {
  switch (kind) {
    case nn::MLPKind::gelu_tanh:
      return "gelu-tanh";
    case nn::MLPKind::gelu:
      return "gelu";
    case nn::MLPKind::swiglu:
      return "swiglu";
    case nn::MLPKind::geglu:
      return "geglu";
  }
  return "";
}

std::string rotary_words(const nn::DecoderConfig& config) {
  const bool halves = config.rotary_pairs == kernels::RotaryPairs::halves;
  std::string words = fmt::format("rotary {} of {} values{}", config.rotary_base,
                                  config.rotated_elems(), halves ? "" : " in neighbouring pairs");
  const kernels::RotaryScaling& scaling = config.rotary_scaling;
  if (scaling.original_positions > 0) {
    words += fmt::format(" scaled {} {} {} {}", scaling.factor, scaling.low_frequency_factor,
                         scaling.high_frequency_factor, scaling.original_positions);
  }
  return words;
}

}  // namespace

std::string describe_sizes(const nn::DecoderConfig& config) {
  std::string heads = fmt::format("{} heads", config.heads);
  if (config.key_heads() != config.heads) {
    heads += fmt::format(" ({} of keys)", config.key_heads());
  }
  if (config.head_size() * config.heads != config.hidden) {
    heads += fmt::format(" of {}", config.head_size());
  }
  const std::string wide = config.mlp_elems() == 4 * config.hidden
                               ? std::string{}
                               : fmt::format(", MLP {}", config.mlp_elems());
  return fmt::format("{} layers, hidden {}, {}{}, vocab {}, seq {}", config.layers, config.hidden,
                     heads, wide, config.vocab, config.seq);
}

std::string describe_parts(const nn::DecoderConfig& config) {
  const nn::DecoderConfig plain;
  std::vector<std::string> words;
  const auto add = [&](bool differs, std::string text) {
    if (differs) { words.push_back(std::move(text)); }
  };
  add(config.key_heads() != config.heads, fmt::format("{} heads of keys", config.key_heads()));
  add(config.head_size() * config.heads != config.hidden,
      fmt::format("heads of {}", config.head_size()));
  add(config.mlp_elems() != 4 * config.hidden, fmt::format("MLP {}", config.mlp_elems()));
  add(config.norm != plain.norm, fmt::format("rms-norm {}", config.norm_eps));
  add(config.head_norms, fmt::format("head norms {}", config.norm_eps));
  add(config.positions != plain.positions, rotary_words(config));
  add(config.mlp != plain.mlp, std::string{word_of(config.mlp)});
  add(!config.qkv_bias, "no qkv bias");
  add(!config.output_bias, "no output bias");
  add(!config.mlp_bias, "no mlp bias");
  add(config.attention_scale != 0.0F, fmt::format("scale {}", config.attention_scale));
  add(config.window != 0,
      fmt::format("window {} from layer {}", config.window, config.first_window_layer));
  add(!config.tied_head, "separate head");
  return fmt::format("{}", fmt::join(words, ", "));
}

nlohmann::ordered_json model_json(const std::string& name, std::int64_t parameters,
                                  const nn::DecoderConfig& config) {
  return {{"name", name},
          {"parameters", parameters},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"vocab", config.vocab},
          {"seq", config.seq},
          {"key_heads", config.key_heads()},
          {"head_size", config.head_size()},
          {"mlp", config.mlp_elems()},
          {"parts", describe_parts(config)}};
}

}  // namespace tessera::tools
