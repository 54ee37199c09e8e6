#pragma once

#include <array>
#include <string>

#include "tessera/nn/decoder_config.hpp"

namespace tessera::test {

/// A decoder that is no GPT-2.
struct NamedConfig {
  const char* name;
  nn::DecoderConfig config;
};

/// Decoders of these sizes, with every part that a GPT-2 does not have. `hidden` is a multiple
/// of 6.
[[nodiscard]] constexpr std::array<NamedConfig, 6> decoder_configs(std::int64_t layers,
                                                                   std::int64_t hidden,
                                                                   std::int64_t vocab,
                                                                   std::int64_t seq) {
  using namespace nn;  // NOLINT(google-build-using-namespace): of enumerators
  DecoderConfig llama{.layers = layers, .hidden = hidden, .heads = 6, .vocab = vocab, .seq = seq};
  llama.kv_heads = 3;
  llama.head_elems = 4;
  llama.wide = hidden + 7;
  llama.norm = NormKind::rms_norm;
  llama.positions = PositionKind::rotary;
  llama.rotary_scaling = {.factor = 2.0, .original_positions = 8};
  llama.mlp = MLPKind::swiglu;
  llama.qkv_bias = llama.output_bias = llama.mlp_bias = false;
  llama.tied_head = false;

  DecoderConfig mistral = llama;
  mistral.rotary_scaling = {};
  mistral.window = 5;
  mistral.first_window_layer = 1;

  DecoderConfig qwen2 = llama;
  qwen2.kv_heads = 2;
  qwen2.rotary_base = 1e6;
  qwen2.norm_eps = 1e-6F;
  qwen2.qkv_bias = true;
  qwen2.tied_head = true;

  DecoderConfig qwen3 = qwen2;
  qwen3.head_elems = 10;
  qwen3.qkv_bias = false;
  qwen3.head_norms = true;

  DecoderConfig mixed{.layers = layers, .hidden = hidden, .heads = 3, .vocab = vocab, .seq = seq};
  mixed.head_elems = 8;
  mixed.positions = PositionKind::rotary;
  mixed.rotary_elems = 6;
  mixed.rotary_pairs = kernels::RotaryPairs::neighbours;
  mixed.mlp = MLPKind::gelu;
  mixed.attention_scale = 0.2F;
  mixed.output_bias = false;
  mixed.tied_head = false;

  DecoderConfig geglu{.layers = layers, .hidden = hidden, .heads = 3, .vocab = vocab, .seq = seq};
  geglu.norm = NormKind::rms_norm;
  geglu.mlp = MLPKind::geglu;
  geglu.qkv_bias = false;

  return {{{"llama", llama},
           {"mistral", mistral},
           {"qwen2", qwen2},
           {"qwen3", qwen3},
           {"mixed", mixed},
           {"geglu", geglu}}};
}

}  // namespace tessera::test
