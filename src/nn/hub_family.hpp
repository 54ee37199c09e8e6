#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/nn/decoder_config.hpp"

namespace tessera::nn {

/// A field that is a size. Without `otherwise` the file must have it; 0: its default in Decoder.
struct HubSize {
  std::string_view field;
  std::int64_t DecoderConfig::* member;
  std::optional<std::int64_t> otherwise = {};
};

/// A field that turns parts on and off.
struct HubFlag {
  std::string_view field;
  std::vector<bool DecoderConfig::*> members;
  bool otherwise = false;
};

/// A field that must have one value, given as JSON, which is also its default.
struct HubFixed {
  std::string_view field;
  std::string_view json;
};

/// Columns of a parameter.
enum class HubColumns : std::uint8_t { all, queries, keys, values, gate, up };

/// A tensor of the hub that makes up columns of a parameter; {} in its name is the layer.
struct HubName {
  std::string_view parameter;
  std::string_view tensor;
  HubColumns columns = HubColumns::all;
  bool transposed = false;
};

/// How a family's config.json describes windows of attention.
enum class HubWindows : std::uint8_t {
  none,
  all_layers,  ///< sliding_window
  by_layer,    ///< use_sliding_window, sliding_window, max_window_layers, layer_types
};

/// A family of models: its fields and its names, as data.
struct HubFamily {
  std::string_view model_type;
  std::string_view architecture;  ///< the class with a head
  std::string_view base_model;    ///< the class without, whose names lack `prefix`
  std::string_view prefix;
  DecoderConfig parts;  ///< parts that no field changes
  std::vector<HubSize> sizes;
  std::string_view norm_eps;  ///< the field of DecoderConfig::norm_eps; empty if it is fixed
  std::vector<HubFlag> flags;
  std::vector<HubFixed> fixed;
  std::string_view activation;  ///< the field of DecoderConfig::mlp
  std::vector<std::pair<std::string_view, MLPKind>> activations;
  HubWindows windows = HubWindows::none;
  const std::vector<HubName>& names;
};

/// All families, those with fewer parts first.
[[nodiscard]] const std::vector<HubFamily>& hub_families();
/// The family of that model_type; null if there is none.
[[nodiscard]] const HubFamily* find_hub_family(std::string_view model_type);
/// The same; throws ConfigError that lists the families if there is none.
[[nodiscard]] const HubFamily& hub_family(std::string_view model_type);
/// "gpt2", "llama", ... as an error lists them.
[[nodiscard]] std::string hub_family_names();

/// Whether a field changes neither weights nor logits in any family.
[[nodiscard]] bool is_hub_field_without_effect(std::string_view field);

}  // namespace tessera::nn
