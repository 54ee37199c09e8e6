// A decoder's config into config.json.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "nn/hub_fields.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nn {
namespace {

using nlohmann::json;

/// Equal for decoders that compute the same.
DecoderConfig complete(DecoderConfig config) {
  config.kv_heads = config.key_heads();
  config.head_elems = config.head_size();
  config.wide = config.mlp_elems();
  config.rotary_elems = config.rotated_elems();
  if (config.attention_scale == 1.0F / std::sqrt(static_cast<float>(config.head_elems))) {
    config.attention_scale = 0.0F;
  }
  if (config.window == 0 || config.first_window_layer >= config.layers) {
    config.window = config.first_window_layer = 0;
  }
  const DecoderConfig plain;
  const bool rotates = config.positions == PositionKind::rotary;
  if (!rotates) {
    config.rotary_base = plain.rotary_base;
    config.rotary_pairs = plain.rotary_pairs;
  }
  if (!rotates || config.rotary_scaling.original_positions == 0) {
    config.rotary_scaling = plain.rotary_scaling;
  }
  return config;
}

// The shortest decimal that is the same float: 1e-06, not 9.99999997e-07.
double short_number(float value) {
  return json::parse(fmt::format("{}", value)).get<double>();
}

void write_rotary(json& fields, const DecoderConfig& config) {
  json rotation{{"rope_type", "default"}};
  const kernels::RotaryScaling& scaling = config.rotary_scaling;
  if (scaling.original_positions > 0) {
    rotation = {{"rope_type", "llama3"},
                {"factor", scaling.factor},
                {"low_freq_factor", scaling.low_frequency_factor},
                {"high_freq_factor", scaling.high_frequency_factor},
                {"original_max_position_embeddings", scaling.original_positions}};
    fields["rope_scaling"] = rotation;
  }
  fields["rope_theta"] = rotation["rope_theta"] = config.rotary_base;
  fields["rope_parameters"] = std::move(rotation);
}

void write_windows(json& fields, HubWindows windows, const DecoderConfig& config) {
  if (windows == HubWindows::none) { return; }
  const bool any = config.window > 0;
  fields["sliding_window"] = any ? json(config.window) : json();
  if (windows != HubWindows::by_layer) { return; }
  fields["use_sliding_window"] = any;
  fields["max_window_layers"] = any ? config.first_window_layer : config.layers;
  json types = json::array();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    types.push_back(config.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
  }
  fields["layer_types"] = std::move(types);
}

json other_fields(const HubConfig& config) {
  json fields = json::parse(config.other_fields, nullptr, false);
  if (!fields.is_object()) {
    throw ConfigError{"HubConfig::other_fields: expected the text of a JSON object"};
  }
  // transformers has ids of its own for tokens that are left out.
  for (const char* const token : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    fields.emplace(token, nullptr);
  }
  return fields;
}

json fields_of(const HubFamily& family, const DecoderConfig& config, json fields) {
  fields["model_type"] = std::string{family.model_type};
  fields["architectures"] = {std::string{family.architecture}};
  for (const HubSize& size : family.sizes) {
    fields[std::string{size.field}] = config.*size.member;
  }
  if (!family.norm_eps.empty()) {
    fields[std::string{family.norm_eps}] = short_number(config.norm_eps);
  }
  for (const HubFlag& flag : family.flags) {
    fields[std::string{flag.field}] = config.*flag.members.front();
  }
  for (const auto& [name, kind] : family.activations) {
    if (kind == config.mlp && !fields.contains(family.activation)) {
      fields[std::string{family.activation}] = name;
    }
  }
  if (config.positions == PositionKind::rotary) {
    write_rotary(fields, config);
    write_windows(fields, family.windows, config);
  }
  return fields;
}

/// Why a decoder is not a model of `family`; empty if it is.
std::string fault_of(const json& fields, const DecoderConfig& config) {
  try {
    const bool same = complete(parse_hub_config("config.json", fields).decoder) == config;
    return same ? "" : "the family has other parts";
  } catch (const FormatError& error) { return error.what(); }
}

}  // namespace

json hub_fields(const HubConfig& config, DType dtype) {
  const HubFamily& family = hub_family(config.family);
  config.decoder.validate();
  const DecoderConfig decoder = complete(config.decoder);
  json fields = fields_of(family, decoder, other_fields(config));
  for (const auto& [name, known] : kHubDTypes) {
    if (known == dtype) { fields["dtype"] = fields["torch_dtype"] = name; }
  }
  const std::string fault = fault_of(fields, decoder);
  if (!fault.empty()) {
    throw ConfigError(fmt::format("this decoder is no model of Hugging Face's family \"{}\": {}",
                                  config.family, fault));
  }
  return fields;
}

std::string hub_config_text(const HubConfig& config) {
  return hub_fields(config, config.dtype.value_or(DType::fp32)).dump();
}

HubConfig hub_config(const DecoderConfig& decoder) {
  decoder.validate();
  const DecoderConfig all = complete(decoder);
  for (const HubFamily& family : hub_families()) {
    if (!fault_of(fields_of(family, all, json::object()), all).empty()) { continue; }
    return {.family = std::string{family.model_type}, .decoder = decoder};
  }
  throw ConfigError(fmt::format(
      "no family of Hugging Face's models has the parts of this decoder: expected those of {}",
      hub_family_names()));
}

}  // namespace tessera::nn
