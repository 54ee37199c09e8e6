// config.json into a DecoderConfig, and everything in it that is refused.
#include "hub/hub_data.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nn::hub_config_test {
namespace {

using nlohmann::json;
using test::TemporaryFolder;

// The parts of Llama, and the sizes of the recorded models.
DecoderConfig small(std::int64_t kv_heads) {
  DecoderConfig config{.layers = 2,
                       .hidden = 16,
                       .heads = 4,
                       .vocab = 53,
                       .seq = 24,
                       .kv_heads = kv_heads,
                       .wide = 28};
  config.norm = NormKind::rms_norm;
  config.norm_eps = 1e-5F;
  config.positions = PositionKind::rotary;
  config.mlp = MLPKind::swiglu;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.tied_head = false;
  return config;
}

DecoderConfig expected_of(const std::string& model) {
  if (model == "gpt2") { return {.layers = 2, .hidden = 16, .heads = 4, .vocab = 53, .seq = 24}; }
  DecoderConfig config = small(model == "llama2" ? 4 : 2);
  config.head_elems = model == "llama3" ? 8 : model == "qwen3" ? 6 : model == "qwen2" ? 0 : 4;
  if (model == "llama2") { config.qkv_bias = config.output_bias = config.mlp_bias = true; }
  if (model == "llama3") {
    config.seq = 64;
    config.rotary_scaling = {.factor = 8.0,
                             .low_frequency_factor = 0.25,
                             .high_frequency_factor = 4.0,
                             .original_positions = 32};
  }
  if (model == "llama3" || model == "qwen3") { config.tied_head = true; }
  if (model == "mistral") { config.window = 7; }
  if (model == "qwen2") {
    config.qkv_bias = true;
    config.rotary_base = 1e6;
    config.window = 9;
    config.first_window_layer = 1;
  }
  if (model == "qwen3") { config.head_norms = true; }
  return config;
}

/// Reads the config.json of `model` with the fields of `patch`; null removes one.
HubConfig read_patched(const std::string& model, const json& patch) {
  const TemporaryFolder folder;
  json fields = test::read_json(test::hub_folder(model) / "config.json");
  fields.merge_patch(patch);
  folder.write("config.json", fields.dump());
  return read_hub_config(folder.path());
}

/// The refusal without the path.
std::string refusal(const std::string& model, const json& patch) {
  const std::string text =
      test::message_of<FormatError>([&] { static_cast<void>(read_patched(model, patch)); });
  const std::string file = "config.json: ";
  const std::size_t at = text.find(file);
  return at == std::string::npos ? text : text.substr(at + file.size());
}

TEST(HubConfig, EachFamilyHasItsSizesAndParts) {
  for (const std::string& model : test::kHubModels) {
    const HubConfig config = read_hub_config(test::hub_folder(model));
    EXPECT_EQ(config.family, model.starts_with("llama") ? "llama" : model);
    EXPECT_EQ(config.decoder, expected_of(model)) << model;
    EXPECT_EQ(config.dtype, DType::fp32);
  }
}

TEST(HubConfig, FieldsOfTransformers4AreReadToo) {
  const json llama3_of_4{{"rope_parameters", nullptr},
                         {"rope_theta", 10000},
                         {"rope_scaling",
                          {{"rope_type", "llama3"},
                           {"factor", 8},
                           {"low_freq_factor", 0.25},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 32}}},
                         {"dtype", nullptr},
                         {"torch_dtype", "bfloat16"}};
  const HubConfig llama = read_patched("llama3", llama3_of_4);
  EXPECT_EQ(llama.decoder, expected_of("llama3"));
  EXPECT_EQ(llama.dtype, DType::bf16);
  const json qwen_of_4{{"rope_parameters", nullptr},
                       {"rope_theta", 1e6},
                       {"rope_scaling", nullptr},
                       {"layer_types", nullptr}};
  EXPECT_EQ(read_patched("qwen2", qwen_of_4).decoder, expected_of("qwen2"));
  DecoderConfig without_window = expected_of("qwen2");
  without_window.window = without_window.first_window_layer = 0;
  EXPECT_EQ(
      read_patched("qwen2", {{"layer_types", nullptr}, {"use_sliding_window", false}}).decoder,
      without_window);
}

TEST(HubConfig, FieldsWithoutEffectAreKept) {
  const json others = json::parse(read_hub_config(test::hub_folder("gpt2")).other_fields);
  EXPECT_EQ(others.at("attn_pdrop"), 0.1);
  EXPECT_EQ(others.at("eos_token_id"), 1);
}

struct Refused {
  const char* model;
  json patch;
  const char* text;
};

TEST(HubConfig, RefusesByName) {
  const std::vector<Refused> cases{
      {"llama2",
       {{"x", 1}},
       "field 'x' is unknown for model_type llama; it may change the model: remove it if it "
       "changes "
       "neither weights nor logits"},
      {"llama2",
       {{"n_embd", 1}},
       "field 'n_embd' is unknown for model_type llama; it may change the model: remove it if it "
       "changes neither weights nor logits"},
      {"llama2", {{"hidden_act", "gelu"}}, "field 'hidden_act' is \"gelu\", expected \"silu\""},
      {"gpt2",
       {{"activation_function", "relu"}},
       "field 'activation_function' is \"relu\", expected \"gelu_new\" or \"gelu_pytorch_tanh\" or "
       "\"gelu\""},
      {"gpt2",
       {{"layer_norm_epsilon", 1e-6}},
       "field 'layer_norm_epsilon' is 1e-06, expected 1e-05"},
      {"gpt2",
       {{"scale_attn_by_inverse_layer_idx", true}},
       "field 'scale_attn_by_inverse_layer_idx' is true, expected false"},
      {"llama2",
       {{"model_type", "bert"}},
       "field 'model_type' is \"bert\", expected \"gpt2\", \"llama\", \"mistral\", \"qwen2\" or "
       "\"qwen3\""},
      {"llama2",
       {{"model_type", nullptr}},
       "field 'model_type' is missing, expected \"gpt2\", \"llama\", \"mistral\", \"qwen2\" or "
       "\"qwen3\""},
      {"llama2",
       {{"architectures", {"LlamaForSequenceClassification"}}},
       "field 'architectures' is [\"LlamaForSequenceClassification\"], expected "
       "[\"LlamaForCausalLM\"]"},
      {"llama2",
       {{"hidden_size", nullptr}},
       "field 'hidden_size' is missing, expected a whole number of at least 1"},
      {"llama2",
       {{"hidden_size", -16}},
       "field 'hidden_size' is -16, expected a whole number of at least 1"},
      {"llama2",
       {{"attention_bias", "no"}},
       "field 'attention_bias' is \"no\", expected true or false"},
      {"llama2",
       {{"head_dim", 256}},
       "heads of 256 values (field 'head_dim', or hidden size / heads), expected at most 128"},
      {"llama2",
       {{"quantization_config", {{"bits", 4}}}},
       "field 'quantization_config' is {\"bits\":4}, expected no such field: quantised weights are "
       "not read; save the model in bf16"},
      {"llama2",
       {{"rope_parameters", {{"rope_type", "yarn"}}}},
       "field 'rope_parameters.rope_type' is \"yarn\", expected \"default\" or \"llama3\""},
      {"llama2",
       {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
       "field 'rope_scaling.type' is \"linear\", expected \"default\" or \"llama3\""},
      {"llama2",
       {{"rope_parameters", {{"factor", 2.0}}}},
       "field 'rope_parameters.factor' is 2.0, expected no such field for rope type \"default\""},
      {"llama3",
       {{"rope_parameters", {{"low_freq_factor", nullptr}}}},
       "field 'rope_parameters.low_freq_factor' is missing, expected a number above 0"},
      {"llama3",
       {{"rope_theta", 5e5}},
       "field 'rope_theta' is 500000.0, expected 10000, as in the object of the rotation"},
      {"llama3",
       {{"rope_scaling", {{"rope_type", "default"}}}},
       "field 'rope_scaling' is {\"rope_type\":\"default\"}, expected the same scaling as "
       "'rope_parameters', or one of them"},
      {"qwen2",
       {{"layer_types", {"sliding_attention", "full_attention"}}},
       "field 'layer_types' is [\"sliding_attention\",\"full_attention\"], expected "
       "\"full_attention\", then \"sliding_attention\""},
      {"qwen2",
       {{"layer_types", {"full_attention"}}},
       "field 'layer_types' is [\"full_attention\"], expected a list of 2 layers"},
      {"qwen2",
       {{"use_sliding_window", false}},
       "field 'layer_types' is [\"full_attention\",\"sliding_attention\"], expected "
       "\"full_attention\" without a window"},
      {"llama2",
       {{"num_key_value_heads", 3}},
       "3 heads of keys do not divide 4 query heads: give a divisor"},
  };
  for (const Refused& refused : cases) {
    EXPECT_EQ(refusal(refused.model, refused.patch), refused.text);
  }
}

TEST(HubConfig, RefusesFilesThatAreNotJson) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      test::message_of<FormatError>([&] { static_cast<void>(read_hub_config(folder.path())); }),
      (folder / "config.json").string() +
          ": cannot be opened; expected a folder with config.json in Hugging Face's format");
  folder.write("config.json", "[]");
  EXPECT_EQ(
      test::message_of<FormatError>([&] { static_cast<void>(read_hub_config(folder.path())); }),
      (folder / "config.json").string() + ": expected an object");
  folder.write("config.json", "{");
  EXPECT_THROW(static_cast<void>(read_hub_config(folder.path())), FormatError);
}

TEST(HubConfig, FindsTheFamilyOfADecoder) {
  for (const std::string& model : test::kHubModels) {
    const HubConfig read = read_hub_config(test::hub_folder(model));
    EXPECT_EQ(hub_config(read.decoder).family, read.family) << model;
  }
  for (const std::string_view name : DecoderConfig::preset_names()) {
    EXPECT_NO_THROW(static_cast<void>(hub_config(DecoderConfig::preset(name)))) << name;
  }
  DecoderConfig other = DecoderConfig::preset("gpt2");
  other.mlp = MLPKind::geglu;
  EXPECT_EQ(test::message_of<ConfigError>([&] { static_cast<void>(hub_config(other)); }),
            "no family of Hugging Face's models has the parts of this decoder: expected those of "
            "\"gpt2\", \"llama\", \"mistral\", \"qwen2\" or \"qwen3\"");
}

}  // namespace
}  // namespace tessera::nn::hub_config_test
