// config.json into a decoder's config.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "nn/hub_fields.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::nn {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostHeadElems = 128;

const HubFamily& family_in(HubFields& fields) {
  const json* type = fields.take("model_type");
  const HubFamily* family = type != nullptr && type->is_string()
                                ? find_hub_family(type->get_ref<const std::string&>())
                                : nullptr;
  if (family == nullptr) { fields.refuse("model_type", hub_family_names()); }
  return *family;
}

void read_architectures(HubFields& fields, const HubFamily& family) {
  const json* found = fields.take("architectures");
  if (found == nullptr || *found == json::array()) { return; }
  const auto is_list_of = [&](std::string_view name) {
    return found->is_array() && found->size() == 1 && found->front() == std::string{name};
  };
  if (is_list_of(family.architecture) || is_list_of(family.base_model)) { return; }
  fields.refuse("architectures", fmt::format("[\"{}\"]", family.architecture));
}

void read_fixed(HubFields& fields, const HubFamily& family) {
  for (const HubFixed& fixed : family.fixed) {
    const json* found = fields.take(fixed.field);
    if (found == nullptr || *found == json::parse(fixed.json)) { continue; }
    fields.refuse(fixed.field, fixed.json);
  }
}

void read_activation(HubFields& fields, const HubFamily& family, DecoderConfig& to) {
  const json* found = fields.take(family.activation);
  if (found == nullptr) { return; }
  std::string expected;
  for (const auto& [name, kind] : family.activations) {
    if (*found == std::string{name}) {
      to.mlp = kind;
      return;
    }
    expected += fmt::format("{}\"{}\"", expected.empty() ? "" : " or ", name);
  }
  fields.refuse(family.activation, expected);
}

// The rotation that one field describes; transformers 4 and 5 have different ones.
struct Rotation {
  std::optional<double> base;
  kernels::RotaryScaling scaling;
};

kernels::RotaryScaling read_llama3(HubFields& fields) {
  const auto positive = [&](std::string_view field) {
    const std::optional<double> value = fields.number(field);
    if (!value || !(*value > 0.0)) { fields.refuse(field, "a number above 0"); }
    return *value;
  };
  return {.factor = positive("factor"),
          .low_frequency_factor = positive("low_freq_factor"),
          .high_frequency_factor = positive("high_freq_factor"),
          .original_positions = fields.whole("original_max_position_embeddings", {})};
}

std::optional<Rotation> read_rotation(HubFields& fields, std::string_view field) {
  const json* found = fields.take(field);
  if (found == nullptr) { return {}; }
  if (!found->is_object()) { fields.refuse(field, "an object"); }
  HubFields inner{fields.path(), *found, fmt::format("{}.", field)};
  std::string type = "default";
  for (const char* const name : {"type", "rope_type"}) {
    const json* value = inner.take(name);
    if (value == nullptr) { continue; }
    if (*value != "default" && *value != "llama3") {
      inner.refuse(name, "\"default\" or \"llama3\"");
    }
    type = value->get<std::string>();
  }
  Rotation rotation{.base = inner.number("rope_theta"), .scaling = {}};
  if (inner.number("partial_rotary_factor").value_or(1.0) != 1.0) {
    inner.refuse("partial_rotary_factor", "1.0");
  }
  if (type == "llama3") { rotation.scaling = read_llama3(inner); }
  for (const std::string& unknown : inner.rest()) {
    inner.refuse(unknown, fmt::format("no such field for rope type \"{}\"", type));
  }
  return rotation;
}

void read_rotary(HubFields& fields, DecoderConfig& to) {
  const std::optional<double> base = fields.number("rope_theta");
  const auto scaling = read_rotation(fields, "rope_scaling");
  const auto parameters = read_rotation(fields, "rope_parameters");
  if (scaling && parameters && scaling->scaling != parameters->scaling) {
    fields.refuse("rope_scaling", "the same scaling as 'rope_parameters', or one of them");
  }
  to.rotary_scaling = parameters ? parameters->scaling
                      : scaling  ? scaling->scaling
                                 : Rotation{}.scaling;
  std::optional<double> chosen = base;
  for (const auto& rotation : {scaling, parameters}) {
    if (!rotation || !rotation->base) { continue; }
    if (chosen && *chosen != *rotation->base) {
      fields.refuse("rope_theta",
                    fmt::format("{}, as in the object of the rotation", *rotation->base));
    }
    chosen = rotation->base;
  }
  to.rotary_base = chosen.value_or(10'000.0);
}

// The first layer with a window, by a list of the layers' types.
std::int64_t first_window_in(HubFields& fields, const json& types, const DecoderConfig& config) {
  const auto is = [](const char* type) {
    return [type](const json& found) { return found == type; };
  };
  const bool counts = types.is_array() && std::ssize(types) == config.layers;
  if (!counts) { fields.refuse("layer_types", fmt::format("a list of {} layers", config.layers)); }
  const auto first = std::find_if_not(types.begin(), types.end(), is("full_attention"));
  if (!std::all_of(first, types.end(), is("sliding_attention"))) {
    fields.refuse("layer_types", "\"full_attention\", then \"sliding_attention\"");
  }
  return first - types.begin();
}

void read_windows(HubFields& fields, HubWindows windows, DecoderConfig& to) {
  const bool by_layer = windows == HubWindows::by_layer;
  if (windows != HubWindows::none) {
    const bool use = !by_layer || fields.flag("use_sliding_window", false);
    const json* given = fields.take("sliding_window");
    // Mistral's files give null for none, others leave it out.
    const bool has_default = given == nullptr && fields.is_absent("sliding_window");
    to.window = has_default ? 4096 : given == nullptr ? 0 : fields.whole("sliding_window", {});
    if (!use) { to.window = 0; }
  }
  if (by_layer) { to.first_window_layer = fields.whole("max_window_layers", 28, 0); }
  if (const json* types = fields.take("layer_types")) {
    const std::int64_t first = first_window_in(fields, *types, to);
    const std::int64_t expected = to.window > 0 ? 0 : to.layers;
    if ((first < to.layers && to.window == 0) || (!by_layer && first != expected)) {
      fields.refuse("layer_types", to.window > 0 ? "\"sliding_attention\""
                                                 : "\"full_attention\" without a window");
    }
    to.first_window_layer = first;
  }
  if (to.window == 0 || to.first_window_layer >= to.layers) {
    to.window = to.first_window_layer = 0;
  }
}

std::optional<DType> read_dtype(HubFields& fields) {
  std::optional<DType> read;
  for (const char* const field : {"torch_dtype", "dtype"}) {
    const json* found = fields.take(field);
    for (const auto& [name, dtype] : kHubDTypes) {
      if (found != nullptr && *found == name) { read = dtype; }
    }
  }
  return read;
}

// What is left changes nothing, or may change the model.
std::string read_others(const HubFields& fields, const HubFamily& family, const json& object) {
  json others = json::object();
  for (const std::string& field : fields.rest()) {
    if (field == "quantization_config") {
      fields.refuse(field, "no such field: quantised weights are not read; save the model in bf16");
    }
    if (!is_hub_field_without_effect(field)) {
      throw FormatError(fmt::format(
          "{}: field '{}' is unknown for model_type {}; it may change the model: remove it if it "
          "changes neither weights nor logits",
          fields.path(), shown(field), family.model_type));
    }
    others[field] = object.at(field);
  }
  return others.dump(-1, ' ', false, json::error_handler_t::replace);
}

void check(const std::string& path, const DecoderConfig& config) {
  try {
    config.validate();
  } catch (const ConfigError& error) {
    throw FormatError(fmt::format("{}: {}", path, error.what()));
  }
  if (config.head_size() <= kMostHeadElems) { return; }
  throw FormatError(
      fmt::format("{}: heads of {} values (field 'head_dim', or hidden size / heads), "
                  "expected at most {}",
                  path, config.head_size(), kMostHeadElems));
}

json parse_text(const std::string& text, const std::string& path) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw FormatError(fmt::format("{}: invalid JSON: {}", path, shown(error.what())));
  }
}

json parse_file(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) {
    throw FormatError(
        fmt::format("{}: cannot be opened; expected a folder with config.json in "
                    "Hugging Face's format",
                    path.string()));
  }
  return parse_text({std::istreambuf_iterator<char>{file}, {}}, path.string());
}

}  // namespace

HubConfig parse_hub_config(const std::string& path, const json& object) {
  if (!object.is_object()) { throw FormatError(fmt::format("{}: expected an object", path)); }
  HubFields fields{path, object};
  const HubFamily& family = family_in(fields);
  HubConfig config{.family = std::string{family.model_type}, .decoder = family.parts};
  DecoderConfig& to = config.decoder;
  read_architectures(fields, family);
  for (const HubSize& size : family.sizes) {
    to.*size.member = fields.whole(size.field, size.otherwise);
  }
  if (!family.norm_eps.empty()) {
    to.norm_eps = static_cast<float>(fields.number(family.norm_eps).value_or(1e-6));
  }
  for (const HubFlag& flag : family.flags) {
    const bool value = fields.flag(flag.field, flag.otherwise);
    for (const auto member : flag.members) { to.*member = value; }
  }
  read_fixed(fields, family);
  read_activation(fields, family, to);
  if (to.positions == PositionKind::rotary) {
    read_rotary(fields, to);
    read_windows(fields, family.windows, to);
  }
  config.dtype = read_dtype(fields);
  config.other_fields = read_others(fields, family, object);
  check(path, to);
  return config;
}

HubConfig hub_config_of_text(const std::string& text, const std::string& where) {
  return parse_hub_config(where, parse_text(text, where));
}

HubConfig read_hub_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_hub_config(path.string(), parse_file(path));
}

}  // namespace tessera::nn
